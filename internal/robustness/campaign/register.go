package campaign

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// register is the game of the campaign: a list of the actions that were applied, in order. An action that
// took effect twice is in it twice. The outcome of an action depends on the actions before it, so that an
// owner which forgot an outcome, or replayed another history, answers differently.
type register struct {
	applied []string
}

var _ tile.Rules = (*register)(nil)

// Restore implements tile.Rules.
func (r *register) Restore(snapshot []byte) error {
	r.applied = nil
	if len(snapshot) > 0 {
		r.applied = strings.Split(string(snapshot), "\n")
	}
	return nil
}

// Resolve implements tile.Rules.
func (r *register) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	n := len(r.applied)
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
func (r *register) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if len(e) == 0 {
			return errors.New("an event without an action")
		}
		r.applied = append(r.applied, string(e))
	}
	return nil
}

// Snapshot implements tile.Rules.
func (r *register) Snapshot() ([]byte, error) { return []byte(strings.Join(r.applied, "\n")), nil }

// digest is short and equal for equal states.
func (r *register) digest() string {
	sum := sha256.Sum256([]byte(strings.Join(r.applied, "\n")))
	return hex.EncodeToString(sum[:8])
}
