package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// Violation is a broken promise.
type Violation struct {
	Check  string       // name of the check
	Tile   fence.TileID // zero: it is about the run
	Detail string
	At     int64 // time of the record that shows it, as in history.Record
}

func (v Violation) String() string {
	if v.Tile == 0 {
		return fmt.Sprintf("%s: %s", v.Check, v.Detail)
	}
	return fmt.Sprintf("%s: tile %s: %s (at %d)", v.Check, v.Tile, v.Detail, v.At)
}

// Check is one promise. Judge gets one tile's part of a history and reports there what breaks the promise.
type Check struct {
	Name  string
	Judge func(t *Tile)
}

// All returns every check that holds for any history, in the order of the invariants.
func All() []Check {
	return []Check{
		{"one writer", OneWriter},
		{"sequence climbs", SequenceClimbs},
		{"no fork", NoFork},
		{"replay complete", ReplayComplete},
		{"idempotent commits", IdempotentCommits},
		{"confirmed is kept", ConfirmedKept},
		{"owner keeps", OwnerKeeps},
		{"rejected writer stops", RejectedStops},
		{"rejected writer learns", RejectedIsTold},
		{"asks first", AsksFirst},
		{"epochs are unique", EpochsUnique},
		{"authority linearizable", AuthorityLinearizable},
		{"commits linearizable", CommitsLinearizable},
		{"installed before served", InstalledBeforeServed},
		{"fails closed", FailClosed},
		{"handed over confirmed", HandedOverConfirmed},
		{"answers follow the table", AnswersFollowTable},
		{"views ordered", ViewsOrdered},
		{"converged", Converged},
		{"one outcome", OneOutcome},
		{"answers are kept", AnswersKept},
		{"paid once", PaidOnce},
	}
}

// Run judges every tile of a history and returns the violations in order of time.
func Run(h *history.History, checks []Check) []Violation {
	return RunWithin(h, checks, linearizeTimeout)
}

// RunWithin is Run with another bound on the time that one linearizability check may take, of one tile.
func RunWithin(h *history.History, checks []Check, patience time.Duration) []Violation {
	var found []Violation
	for _, id := range h.Tiles() {
		t := NewTile(h, id)
		t.patience = patience
		if t.Final == nil {
			found = append(found, Violation{Check: "final record", Tile: id,
				Detail: "the history does not say how the tile ended; nothing can be checked"})
			continue
		}
		for _, c := range checks {
			t.check = c.Name
			c.Judge(t)
		}
		found = append(found, t.found...)
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return found
}

// breaks reports that a record taken at some time breaks the promise of the check at work.
func (t *Tile) breaks(at int64, format string, args ...any) {
	t.found = append(t.found, Violation{Check: t.check, Tile: t.ID, At: at, Detail: fmt.Sprintf(format, args...)})
}
