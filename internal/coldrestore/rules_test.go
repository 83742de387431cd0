package coldrestore_test

import (
	"fmt"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// ledger is a game whose state is the list of all actions that ever were applied, in order: what is lost of it is
// there to be counted.
type ledger struct{ actions []string }

func (l *ledger) Restore(snapshot []byte) error {
	l.actions = nil
	if len(snapshot) > 0 {
		l.actions = strings.Split(string(snapshot), "\n")
	}
	return nil
}

func (l *ledger) Resolve(_ fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	var events [][]byte
	var outcomes []stream.Outcome
	for _, in := range intents {
		events = append(events, []byte(in.ActionID))
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (l *ledger) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		l.actions = append(l.actions, string(e))
	}
	return nil
}

func (l *ledger) Snapshot() ([]byte, error) { return []byte(strings.Join(l.actions, "\n")), nil }

// applyBatch folds a batch, as a client does.
func (l *ledger) applyBatch(e *fence.Entry) error {
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return fmt.Errorf("tick %d: %w", e.Tick, err)
	}
	return l.Apply(e.Tick, b.Events)
}
