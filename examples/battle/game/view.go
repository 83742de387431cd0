package game

import (
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// View is a watcher's picture of one tile: a snapshot and the batches after it. It knows nothing of
// positions: the caller checks that each batch follows the last (frame.Prev equals the position
// held) and restores it from a snapshot where one does not. Safe for concurrent use.
type View struct {
	mu    sync.RWMutex
	state *state
	tick  fence.Tick
}

// NewView returns the view of an empty tile whose ground has that many cells. A *fence.ArgumentError
// refuses numbers outside 1 to 65,535.
func NewView(cells int) (*View, error) {
	if err := checkCells(cells); err != nil {
		return nil, err
	}
	return &View{state: newState(cells)}, nil
}

// Restore replaces the picture with a snapshot's: the bytes Rules.Snapshot wrote, as a relay sends
// them; nil is an empty tile. A *fence.FormatError leaves the view as it was.
func (v *View) Restore(snapshot []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, err := decodeState(snapshot, len(v.state.ground))
	if err == nil {
		v.state = s
	}
	return err
}

// Apply folds one committed batch, as watchers are sent it. Rebase markers carry none: restore instead. After an
// error, a *fence.FormatError or one that matches ErrDisagree, part of the batch may be folded: restore.
func (v *View) Apply(e *fence.Entry) error {
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tick = e.Tick
	return v.state.fold(e.Tick, b.Events)
}

// Digest is the digest of the picture. It equals the Rules' once both have folded the same batches.
func (v *View) Digest() Digest {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.state.digest()
}

// Tick is the tick of the last batch applied; zero before the first. Restore does not change it, since
// the game's snapshot does not say.
func (v *View) Tick() fence.Tick {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.tick
}

// Ships lists all ships, destroyed ones included, in the order of their numbers. The slice is a copy.
func (v *View) Ships() []Ship {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Clone(v.state.ships)
}

// ShipOf is an owner's ship; ok is false when he has none here.
func (v *View) ShipOf(owner string) (s Ship, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if ship := v.state.of(owner); ship != nil {
		return *ship, true
	}
	return Ship{}, false
}
