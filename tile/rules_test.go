package tile_test

import (
	"bytes"
	"errors"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// ledgerRules is the smallest game that notices every lost, doubled or reordered event: its state is the
// list of words it was told, in order. An intent is a word; "no" fizzles.
type ledgerRules struct {
	words []string
	err   error // returned by Apply when set
}

func (r *ledgerRules) Restore(snapshot []byte) error {
	r.words = nil
	if len(snapshot) > 0 {
		r.words = strings.Split(string(snapshot), " ")
	}
	return nil
}

func (r *ledgerRules) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for _, in := range intents {
		if bytes.Equal(in.Body, []byte("no")) {
			outcomes = append(outcomes, stream.Fizzled)
			continue
		}
		events = append(events, in.Body)
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (r *ledgerRules) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if len(e) == 0 {
			return errors.New("an empty word")
		}
		r.words = append(r.words, string(e))
	}
	return r.err
}

func (r *ledgerRules) Snapshot() ([]byte, error) { return []byte(strings.Join(r.words, " ")), nil }
