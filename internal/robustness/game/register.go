// Package game is what the tiles of the robustness tests play: a game that shows every action that was lost, taken
// twice or reordered. A client's view folds it too.
package game

import (
	"errors"
	"hash/fnv"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Register is a list of the actions that were applied, in order. An action that took effect twice is in it twice.
// The outcome of an action depends on the actions before it, so that an owner which forgot an outcome, or replayed
// another history, answers differently. The zero Register is empty.
type Register struct {
	Applied []string
	Travel  Travel // no part of the state

	begun   bool           // the tile's travellers were born
	here    []string       // those in the tile, sorted
	coins   map[string]int // of those
	arrived int            // how often one came from another tile
}

var _ tile.Rules = (*Register)(nil)

// Restore implements tile.Rules.
func (r *Register) Restore(snapshot []byte) error {
	r.Applied, r.begun, r.here, r.coins, r.arrived = nil, false, nil, nil, 0
	if len(snapshot) == 0 {
		return nil
	}
	for line := range strings.SplitSeq(string(snapshot), "\n") {
		if err := r.apply(line); err != nil {
			return err
		}
	}
	return nil
}

// Resolve implements tile.Rules.
func (r *Register) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	n := len(r.Applied)
	for _, in := range intents {
		if fizzles(n, in.ActionID) {
			outcomes = append(outcomes, stream.Fizzled)
			continue
		}
		n++
		events = append(events, []byte(in.ActionID))
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

// fizzles decides for about one action in five.
func fizzles(n int, id string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash takes everything
	return (h.Sum32()+uint32(n))%5 == 0
}

// Apply implements tile.Rules.
func (r *Register) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if err := r.apply(string(e)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Register) apply(event string) error {
	if event == "" {
		return errors.New("an event without an action")
	}
	if ok, err := r.travels(event); ok {
		return err
	}
	r.Applied = append(r.Applied, event)
	return nil
}

// Snapshot implements tile.Rules.
func (r *Register) Snapshot() ([]byte, error) { return []byte(r.text()), nil }

// Digest is short and equal for equal states.
func (r *Register) Digest() string { return fence.Checksum([]byte(r.text())) }
