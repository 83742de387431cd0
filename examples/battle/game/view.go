package game

import (
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// View is a watcher's picture of one tile, or of some areas of it: a snapshot and the batches after it. It knows
// nothing of positions: the caller checks that each batch follows the last (frame.Prev equals the position
// held) and restores it from a snapshot where one does not. Safe for concurrent use.
type View struct {
	mu    sync.RWMutex
	state *state
	tick  fence.Tick
}

// NewView returns the view of an empty tile, all areas of which it holds. A *fence.ArgumentError refuses a ground
// without cells or with more than 65,535 of them.
func NewView(ground Ground) (*View, error) {
	if err := checkGround(ground); err != nil {
		return nil, err
	}
	return &View{state: newState(ground)}, nil
}

// Crossings take note of the ships that come and go: relayclient.Crossings[Ship] are some.
type Crossings interface {
	Enter(tile fence.TileID, ship string, hop uint64, s Ship) bool
	Leave(tile fence.TileID, ship string, hop uint64, to fence.TileID)
	End(ship string, hop uint64)
	Restore(tile fence.TileID, has func(ship string) bool)
}

// Track lets crossings take note of what the view folds from now on. Their methods must not call the view's.
func (v *View) Track(c Crossings) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state.crossings = c
}

// Restore replaces the picture with a snapshot's: what Rules.Snapshot wrote, or the parts of some areas, as a relay
// sends them. From now on the view holds those areas and no others. A *fence.FormatError leaves the view as it was.
func (v *View) Restore(snapshot []byte, areas fence.AreaSet) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := newState(v.state.ground)
	s.keep(fence.Areas(0)) // nothing
	s.pace, s.crossings = v.state.pace, v.state.crossings
	if err := s.open(snapshot, areas); err != nil {
		return err
	}
	v.state = s
	if s.crossings != nil {
		names := map[string]bool{}
		for i := range s.count() {
			names[s.nth(i).Name()] = true
		}
		s.crossings.Restore(s.ground.ID(), func(name string) bool { return names[name] })
	}
	s.noteAll()
	return nil
}

// Open adds areas to those that the view holds, as a snapshot has them; those that it holds already start over.
// What the snapshot has of others is ignored. A *fence.FormatError leaves the view as it was.
func (v *View) Open(snapshot []byte, areas fence.AreaSet) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.state.clone()
	if err := s.open(snapshot, areas); err != nil {
		return err
	}
	v.state = s
	s.noteAll()
	return nil
}

// noteAll lets the crossings take note of all ships.
func (s *state) noteAll() {
	for i := range s.areas {
		for j := range s.areas[i].ships {
			s.notes(&s.areas[i].ships[j])
		}
	}
}

// Keep forgets what the view holds of other areas.
func (v *View) Keep(areas fence.AreaSet) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state.keep(areas)
}

// Holds reports whether the view holds areas of its tile.
func (v *View) Holds(areas fence.AreaSet) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for a := range v.state.areas {
		if areas.Has(fence.Area(a)) && !v.state.holds(fence.Area(a)) {
			return false
		}
	}
	return true
}

// Apply folds one committed batch, as watchers are sent it; events of areas that the view does not hold are ignored.
// Rebase markers carry none: restore instead. After an error, a *fence.FormatError or one that matches ErrDisagree,
// part of the batch may be folded: restore.
func (v *View) Apply(e *fence.Entry) error {
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tick = max(v.tick, e.Tick) // areas that were opened late catch up
	return v.state.fold(e.Tick, v.held(b))
}

// held is the events of a batch in areas that the view holds.
func (v *View) held(b *stream.Batch) [][]byte {
	events := b.Events[:0]
	for i, event := range b.Events {
		switch {
		case b.Areas != nil && b.Areas[i] == v.state.office():
			if v.state.warps != nil {
				events = append(events, event)
			}
		case b.Areas == nil || v.state.holds(b.Areas[i]):
			events = append(events, event)
		}
	}
	return events
}

// Digest is the digest of the picture's ships. It equals the Rules' if the view holds all areas and both have folded
// the same batches.
func (v *View) Digest() Digest {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.state.digest()
}

// Digests is the digest of each area that the view holds, as in Rules.Digests.
func (v *View) Digests() map[fence.Area]Digest {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.state.digests()
}

// Tick is the latest tick of a batch that was applied; zero before the first. Restore does not change it, since
// the game's snapshot does not say.
func (v *View) Tick() fence.Tick {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.tick
}

// Pace is how many tick intervals a tick lasts, as far as the view knows; 1 before. A snapshot does not say, so that
// a watcher who comes while time is dilated hears of it with the next change.
func (v *View) Pace() float64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return float64(max(v.state.pace, usualPace)) / usualPace
}

// Ships lists the ships that the view holds, destroyed ones included, by area and then by number. The slice is a copy.
func (v *View) Ships() []Ship {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []Ship
	for i := range v.state.areas {
		all = append(all, v.state.areas[i].ships...)
	}
	return all
}

// ShipOf is an owner's ship; ok is false if none is in an area that the view holds.
func (v *View) ShipOf(owner string) (s Ship, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if ship := v.state.of(owner); ship != nil {
		return *ship, true
	}
	return Ship{}, false
}
