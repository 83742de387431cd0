package game

import (
	"bytes"
	"math"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/warp"
)

// Rules is the authoritative side of the game: it implements tile.TransferRules for one tile. A tile's
// processor calls it from one goroutine; the lock is there so that Digest may be asked from another,
// such as a status page's, at any time.
type Rules struct {
	mu    sync.Mutex
	state *state
	turn  turn // memory Resolve works in, kept from tick to tick
}

var (
	_ tile.TransferRules = (*Rules)(nil)
	_ tile.Divided       = (*Rules)(nil)
	_ tile.Dilatable     = (*Rules)(nil)
)

// NewRules returns the rules of an empty tile. A *fence.ArgumentError refuses a ground without cells or
// with more than 65,535 of them.
func NewRules(ground Ground) (*Rules, error) {
	if err := checkGround(ground); err != nil {
		return nil, err
	}
	return &Rules{state: newState(ground)}, nil
}

// Restore implements tile.Rules: it replaces the state with the one a snapshot holds; nil is an empty
// tile. A *fence.FormatError refuses bytes that Snapshot did not write or that were written for another
// ground, and leaves the state as it was.
func (r *Rules) Restore(snapshot []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := newState(r.state.ground)
	if err := s.open(snapshot, fence.AreaSet{}); err != nil {
		return err
	}
	if !s.complete() {
		return &fence.FormatError{What: "game snapshot", Detail: "a ship is missing, or in two areas"}
	}
	r.state = s
	return nil
}

// Resolve implements tile.Rules: Play of a tick without crossings.
func (r *Rules) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	out := r.Play(tick, tile.Inputs{Intents: intents})
	return out.Events, out.Outcomes
}

// Play implements tile.TransferRules: it plays the tick's phases (see the package comment) and leaves the state as it
// is. Equal states, ticks and inputs give equal outputs.
func (r *Rules) Play(tick fence.Tick, in tile.Inputs) tile.Outputs {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turn.play(r.state, tick, &in)
}

// Dilated implements tile.Dilatable: watchers are sent a Paced.
func (r *Rules) Dilated(pace float64) []byte {
	e := Event{Kind: Paced, Pace: uint8(min(math.MaxUint8, math.Ceil(usualPace*max(1, pace))))}
	return e.Append(nil)
}

// Area implements tile.Divided. A Paced is of the whole tile, and so is an event that DecodeEvent refuses: 0.
func (r *Rules) Area(event []byte) fence.Area {
	if bytes.HasPrefix(event, []byte(warp.Prefix)) {
		return r.state.office()
	}
	e, err := DecodeEvent(event)
	if err != nil {
		return 0
	}
	return e.areaOn(r.state.ground) // the ground never changes
}

// Apply implements tile.Rules: it folds a tick's events into the state. An error is a
// *fence.FormatError or matches ErrDisagree; the events before the offending one are then folded.
func (r *Rules) Apply(tick fence.Tick, events [][]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.fold(tick, events)
}

// Snapshot implements tile.Rules: it encodes the whole state, equal states as equal bytes.
//
// It is a list of parts (see fence.Part), one for each area of which there is something to say:
//
//	width   field
//	1       version, 4
//	varint  how many ships have spawned in the area, then the owner's name of each
//	varint  how many have sunk there, then the owner's name of each
//	        then the ships of the area, ascending by number:
//	varint  number, from 1
//	2       cell, big-endian
//	1       hull; zero is destroyed
//	1       shield
//	varint  score
//	varint  first tick at which a destroyed ship may return; zero for a ship in play
//	varint  hop
//	8       home, if the hop is not zero
//	1       length of the owner's name, 1 to 47
//	n       owner's name
//
// A last part, of an area without cells, is the tile's part in fleets (warp.State), if it has any.
func (r *Rules) Snapshot() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.encodeWarps(r.state.encode())
}

// Digest is the digest of the ships as they are now: of what Snapshot returns, without its last part, of fleets.
func (r *Rules) Digest() Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.digest()
}

// Digests is the digest of each area: of the content of its part in a snapshot, and of nothing if it has none.
func (r *Rules) Digests() map[fence.Area]Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.digests()
}

// Waits reports whether a fleet waits for this tile, or in it.
func (r *Rules) Waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.state.warps.Empty()
}

func checkGround(ground Ground) error {
	if n := ground.Len(); n < 1 || n > maxCells {
		return &fence.ArgumentError{Field: "ground", Value: n, Want: "from 1 to 65535 cells"}
	}
	return nil
}
