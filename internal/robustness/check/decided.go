package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// Decided judges one tile of what processes have logged of their decisions (history.Decided). The logs may begin in the
// middle of a tile's life, one of a killed process lacks its end, the tile may have owners that log nothing, and the
// clocks of the processes may differ by skew. So a check of All that needs a whole history, or the calls of all
// parties, is not among them. With gaps, where events were dropped, those that follow an owner from step to step are
// left out as well.
//
// The violations are in order of time; the tile says what is known of it.
func Decided(h *history.History, id fence.TileID, skew time.Duration, gaps bool) (*Tile, []Violation) {
	t := &Tile{ID: id, partial: true, skew: skew}
	t.gather(h)
	checks := []Check{
		{"epochs are unique", EpochsUnique},
		{"epochs climb", EpochsClimb},
		{"one writer", OneWriter},
		{"sequence climbs", SequenceClimbs},
		{"no fork", NoFork},
		{"replay complete", ReplayComplete},
		{"idempotent commits", IdempotentCommits},
		{"confirmed is kept", ConfirmedKept},
		{"rejected writer learns", RejectedIsTold},
		{"commits linearizable", CommitsLinearizable},
		{"answers follow the table", AnswersFollowTable},
	}
	if !gaps {
		checks = append(checks, Check{"owner keeps", OwnerKeeps}, Check{"rejected writer stops", RejectedStops},
			Check{"asks first", AsksFirst}, Check{"installed before served", InstalledBeforeServed})
	}
	for _, c := range checks {
		t.check = c.Name
		c.Judge(t)
	}
	slices.SortStableFunc(t.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return t, t.found
}

// Foreign counts entries that the stream shows and no log of a partial history has: another process wrote them, or one
// that was killed before it had logged them. What came before the first logged write does not count.
func (t *Tile) Foreign() (n int) {
	var first fence.Seq
	for _, e := range t.Entries {
		if len(e.Presented) > 0 && (first == 0 || e.Position.Seq < first) {
			first = e.Position.Seq
		}
	}
	for _, e := range t.Entries {
		if e.Seen && len(e.Presented) == 0 && e.Position.Seq > first {
			n++
		}
	}
	return n
}
