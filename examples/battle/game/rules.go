package game

import (
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Rules is the authoritative side of the game: it implements tile.Rules for one tile. A tile's
// processor calls it from one goroutine; the lock is there so that Digest may be asked from another,
// such as a status page's, at any time.
type Rules struct {
	mu    sync.Mutex
	state *state
	turn  turn // memory Resolve works in, kept from tick to tick
}

var _ tile.Rules = (*Rules)(nil)

// NewRules returns the rules of an empty tile. A *fence.ArgumentError refuses a ground without cells or
// with more than 65,535 of them.
func NewRules(ground Ground) (*Rules, error) {
	if err := checkCells(ground.Len()); err != nil {
		return nil, err
	}
	return &Rules{state: newState(ground.Len()), turn: turn{ground: ground}}, nil
}

// Restore implements tile.Rules: it replaces the state with the one a snapshot holds; nil is an empty
// tile. A *fence.FormatError refuses bytes that Snapshot did not write or that were written for another
// number of cells, and leaves the state as it was.
func (r *Rules) Restore(snapshot []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := decodeState(snapshot, len(r.state.ground))
	if err == nil {
		r.state = s
	}
	return err
}

// Resolve implements tile.Rules: it plays the tick's phases (see the package comment) and leaves the
// state as it is. Equal states, ticks and intents give equal events and outcomes.
func (r *Rules) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turn.play(r.state, tick, intents)
}

// Apply implements tile.Rules: it folds a tick's events into the state. An error is a
// *fence.FormatError or matches ErrDisagree; the events before the offending one are then folded.
func (r *Rules) Apply(tick fence.Tick, events [][]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.fold(tick, events)
}

// Snapshot implements tile.Rules: it encodes the whole state, equal states as equal bytes. It never
// fails.
//
// Encoded, big-endian:
//
//	offset  width  field
//	0       1      version, 1
//	1       2      cells of the ground
//	3       2      number of ships, then each in the order of their numbers:
//
//	        2      cell
//	        1      hull; zero is destroyed
//	        1      shield
//	        4      score
//	        8      first tick at which a destroyed ship may return; zero for a ship in play
//	        1      length of the owner's name, 1 to 64
//	        n      owner's name
//
// The first ship is number 1.
func (r *Rules) Snapshot() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.encode(), nil
}

// Digest is the digest of the state as it is now.
func (r *Rules) Digest() Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.digest()
}

func checkCells(cells int) error {
	if cells < 1 || cells > maxCells {
		return &fence.ArgumentError{Field: "ground", Value: cells, Want: "from 1 to 65535 cells"}
	}
	return nil
}
