package simulation

import (
	"errors"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// ledger is the smallest game that notices every lost, doubled and reordered event: its state is the list of
// actions that were applied, in order. An intent's body is its action's ID; every seventh fizzles.
type ledger struct{ applied []string }

var _ tile.Rules = (*ledger)(nil)

// Restore implements tile.Rules.
func (l *ledger) Restore(snapshot []byte) error {
	l.applied = nil
	if len(snapshot) > 0 {
		l.applied = strings.Split(string(snapshot), " ")
	}
	return nil
}

// Resolve implements tile.Rules.
func (l *ledger) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for _, in := range intents {
		if strings.HasSuffix(in.ActionID, "7") {
			outcomes = append(outcomes, stream.Fizzled)
			continue
		}
		events = append(events, in.Body)
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

// Apply implements tile.Rules.
func (l *ledger) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if len(e) == 0 {
			return errors.New("an empty action")
		}
		l.applied = append(l.applied, string(e))
	}
	return nil
}

// Snapshot implements tile.Rules.
func (l *ledger) Snapshot() ([]byte, error) { return []byte(strings.Join(l.applied, " ")), nil }
