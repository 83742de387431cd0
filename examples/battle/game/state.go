package game

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/warp"
)

// ErrDisagree means that an event does not fit the state it is folded into. Either an event is missing
// before it or the writer and the reader play different rules. The state is then partly folded: restore it.
var ErrDisagree = errors.New("event does not fit the state")

// state is the ships of a tile, or of some areas of it. Rules and View hold one each and change it only through
// apply, which is what makes them agree.
//
// Areas are independent: what an event does to its area depends on that area alone. A ship is in one area after a
// batch, but may be in two while a batch is folded, or while an area that was opened late catches up.
type state struct {
	ground Ground
	areas  []area
	cells  []uint16 // per cell: the number of the ship on it, or zero

	// pace is the last Paced; zero before the first. It is in no snapshot, since it decides nothing.
	pace uint8

	// crossings take note of ships that come and go; nil: none do.
	crossings Crossings

	// warps is the tile's part in fleets; nil: a watcher of some areas, which knows nothing of it. It is in an area of
	// its own, the office.
	warps *warp.State

	// What follows is an index, for questions about the whole tile. It does not decide what an event does.

	in     []fence.Area      // per ship number: an area that it is in; zero: none that is held
	owners map[string]uint32 // the number of each owner's ship that is in an area that is held

	// under is the owners of the state this one is a draft of; nil for a state of its own. A draft
	// records only the owners it changes; zero is one without a ship.
	under map[string]uint32
}

// area is the ships in an area, destroyed ones included, ascending by number.
type area struct {
	held  bool // false: a watcher of other areas, which knows nothing of this one
	ships []Ship
	born  []string // owners of the ships that have spawned here, wherever they are
	sunk  []string // owners of those that have sunk here
}

// newState is the state of an empty tile.
func newState(ground Ground) *state {
	n := ground.Len()
	s := &state{ground: ground, areas: make([]area, 1+int(ground.Area(n-1))), cells: make([]uint16, n),
		in: make([]fence.Area, n+1), owners: map[string]uint32{}, warps: &warp.State{}}
	for i := range s.areas {
		s.areas[i].held = i > 0 // area 0 is nowhere
	}
	return s
}

// office is the area of what is arranged with other tiles. It has no cells, and clients do not watch it.
func (s *state) office() fence.Area { return fence.Area(len(s.areas)) }

// draft makes d an independent copy of s, but for its warps, reusing d's memory. It is for as long as s does not
// change.
func (s *state) draft(d *state) {
	d.ground = s.ground
	d.areas = slices.Grow(d.areas[:0], len(s.areas))[:len(s.areas)]
	for i := range s.areas {
		d.areas[i].held = s.areas[i].held
		d.areas[i].ships = append(d.areas[i].ships[:0], s.areas[i].ships...)
		d.areas[i].born = append(d.areas[i].born[:0], s.areas[i].born...)
		d.areas[i].sunk = append(d.areas[i].sunk[:0], s.areas[i].sunk...)
	}
	d.cells = append(d.cells[:0], s.cells...)
	d.in = append(d.in[:0], s.in...)
	d.under, d.pace = s.owners, s.pace
	if d.owners == nil {
		d.owners = map[string]uint32{}
	}
	clear(d.owners)
}

// clone is an independent copy.
func (s *state) clone() *state {
	d := &state{}
	s.draft(d)
	d.owners, d.under, d.crossings, d.warps = maps.Clone(s.owners), nil, s.crossings, s.warps
	return d
}

// holds reports whether the state knows what happens in an area; area 0 is the whole tile.
func (s *state) holds(a fence.Area) bool {
	return a == 0 || int(a) < len(s.areas) && s.areas[a].held
}

// keep forgets the other areas.
func (s *state) keep(areas fence.AreaSet) {
	if !areas.Has(s.office()) {
		s.warps = nil
	}
	for a := range s.areas {
		if a > 0 && !areas.Has(fence.Area(a)) {
			s.clear(fence.Area(a))
			s.areas[a].held = false
		}
	}
}

// clear forgets an area.
func (s *state) clear(a fence.Area) {
	s.areas[a].born, s.areas[a].sunk = nil, nil
	for ships := &s.areas[a].ships; len(*ships) > 0; {
		s.drop(a, (*ships)[len(*ships)-1].ID)
	}
}

// ship is the ship of a number in an area, or nil. The pointer is good until a ship enters or leaves the area.
func (s *state) ship(a fence.Area, id uint32) *Ship {
	if int(a) >= len(s.areas) {
		return nil
	}
	ships := s.areas[a].ships
	if i, ok := search(ships, id); ok {
		return &ships[i]
	}
	return nil
}

func search(ships []Ship, id uint32) (int, bool) {
	return slices.BinarySearchFunc(ships, id, func(s Ship, id uint32) int { return cmp.Compare(s.ID, id) })
}

// find is the ship of a number in any area that is held, or nil.
func (s *state) find(id uint32) *Ship {
	if int64(id) >= int64(len(s.in)) {
		return nil
	}
	return s.ship(s.in[id], id)
}

// number is the number of an owner's ship; zero, which no ship has, if there is none.
func (s *state) number(owner string) uint32 {
	if id, ok := s.owners[owner]; ok {
		return id
	}
	return s.under[owner]
}

// of is the ship of an owner, or nil. An area that catches up may know of a ship's place or number what was once so:
// the index then has that.
func (s *state) of(owner string) *Ship {
	if ship := s.find(s.number(owner)); ship != nil && ship.Owner == owner {
		return ship
	}
	for a := range s.areas {
		for i := range s.areas[a].ships {
			if ship := &s.areas[a].ships[i]; ship.Owner == owner {
				return ship
			}
		}
	}
	return nil
}

// at is the ship on a cell, or nil.
func (s *state) at(cell int) *Ship {
	return s.ship(s.ground.Area(cell), uint32(s.cells[cell]))
}

func (s *state) free(cell int) bool { return s.cells[cell] == 0 }

// full reports whether an area takes no further ship: each must have a cell to return to.
func (s *state) full(a fence.Area) bool {
	first, end := s.ground.Span(a)
	return len(s.areas[a].ships) >= end-first
}

// count is the number of ships.
func (s *state) count() int {
	n := 0
	for i := range s.areas {
		n += len(s.areas[i].ships)
	}
	return n
}

// nth is one of count ships.
func (s *state) nth(n int) *Ship {
	for i := range s.areas {
		if ships := s.areas[i].ships; n < len(ships) {
			return &ships[n]
		} else {
			n -= len(ships)
		}
	}
	return nil
}

// put adds a ship to an area. A non-empty answer says why it cannot be.
func (s *state) put(a fence.Area, ship Ship) string {
	ships := &s.areas[a].ships
	i, taken := search(*ships, ship.ID)
	other := s.ship(a, s.number(ship.Owner))
	switch {
	case taken || ship.ID == 0 || int64(ship.ID) >= int64(len(s.in)):
		return "no such number, or another ship has it"
	case ship.Owner == "" || len(ship.Owner) > MaxOwner || other != nil && other.Owner == ship.Owner:
		return "the owner is missing or has another ship"
	case s.full(a):
		return "the area is full"
	case ship.InPlay() && !s.free(int(ship.Cell)):
		return "the cell is taken"
	}
	*ships = slices.Insert(*ships, i, ship)
	s.in[ship.ID] = a
	s.owners[ship.Owner] = ship.ID
	if ship.InPlay() {
		s.cells[ship.Cell] = uint16(ship.ID)
	}
	return ""
}

// drop takes a ship out of an area that it is in. It may be in another one already.
func (s *state) drop(a fence.Area, id uint32) {
	ships := &s.areas[a].ships
	i, _ := search(*ships, id)
	gone := (*ships)[i]
	if gone.InPlay() {
		s.cells[gone.Cell] = 0
	}
	*ships = slices.Delete(*ships, i, i+1)
	if s.in[id] != a {
		return
	}
	s.in[id] = 0
	for other := range s.areas {
		if s.ship(fence.Area(other), id) != nil {
			s.in[id] = fence.Area(other)
		}
	}
	switch {
	case s.in[id] != 0 || s.number(gone.Owner) != id:
	case s.under != nil:
		s.owners[gone.Owner] = 0
	default:
		delete(s.owners, gone.Owner)
	}
}

// apply folds one event of a tick. An error, which matches ErrDisagree, leaves the state as it was.
func (s *state) apply(tick fence.Tick, e *Event) error {
	if e.Kind == Paced {
		s.pace = e.Pace
		return nil
	}
	a := e.areaOn(s.ground)
	if a == 0 || !s.holds(a) {
		return disagree(e, fmt.Sprintf("area %d is not held", a))
	}
	switch e.Kind {
	case Spawned, Entered:
		return s.enter(a, e)
	case Sunk:
		s.areas[a].sunk = append(s.areas[a].sunk, e.Owner)
		if s.crossings != nil {
			gone := Ship{Owner: e.Owner, Home: s.home(e.Hop, e.Home)}
			s.crossings.End(gone.Name(), uint64(e.Hop))
		}
		return nil
	}
	id := e.Ship
	if e.Kind == Fired {
		id = e.Target
	}
	ship := s.ship(a, id)
	switch {
	case ship == nil:
		return disagree(e, fmt.Sprintf("area %d has no such ship", a))
	case ship.InPlay() == (e.Kind == Returned) && e.Kind != Scored:
		return disagree(e, "the ship is destroyed, or in play, as it should not be")
	}
	return s.change(tick, a, ship, e)
}

// change is what an event does to a ship that is in its area.
func (s *state) change(tick fence.Tick, a fence.Area, ship *Ship, e *Event) error {
	switch e.Kind {
	case Moved, Warped:
		return s.settle(ship, e)
	case Returned:
		if e.Hull == 0 {
			return disagree(e, "it would return without hull")
		}
		if err := s.settle(ship, e); err != nil {
			return err
		}
		ship.Hull, ship.Shield, ship.Back = e.Hull, e.Shield, 0
	case Shielded:
		if e.Shield <= ship.Shield {
			return disagree(e, "the shield would not grow")
		}
		ship.Shield = e.Shield
	case Fired:
		return s.hit(tick, ship, e)
	case Departed:
		if s.crossings != nil {
			s.crossings.Leave(s.ground.ID(), ship.Name(), uint64(ship.Hop), e.To)
		}
		s.drop(a, ship.ID)
	case Left:
		s.drop(a, ship.ID)
	case Scored:
		ship.Score++
	}
	return nil
}

// enter adds a ship that has spawned or comes from another area.
func (s *state) enter(a fence.Area, e *Event) error {
	switch {
	case e.Hull == 0:
		return disagree(e, "a ship without hull")
	case e.Kind == Spawned && e.Score+e.Hop > 0:
		return disagree(e, "a new ship has scored nothing, and left no tile")
	}
	ship := Ship{ID: e.Ship, Owner: e.Owner, Cell: e.Cell, Hull: e.Hull, Shield: e.Shield, Score: e.Score,
		Home: s.home(e.Hop, e.Home), Hop: e.Hop}
	if why := s.put(a, ship); why != "" {
		return disagree(e, why)
	}
	if e.Kind == Spawned {
		s.areas[a].born = append(s.areas[a].born, e.Owner)
	}
	s.notes(&ship)
	return nil
}

// settle puts a ship on the event's cell, off the one it is on.
func (s *state) settle(ship *Ship, e *Event) error {
	if !s.free(int(e.Cell)) {
		return disagree(e, "the cell is not free")
	}
	if ship.InPlay() {
		s.cells[ship.Cell] = 0
	}
	ship.Cell = e.Cell
	s.cells[e.Cell] = uint16(ship.ID)
	return nil
}

func (s *state) hit(tick fence.Tick, target *Ship, e *Event) error {
	switch {
	case e.Ship == target.ID:
		return disagree(e, "it fires at itself")
	case e.Hull > target.Hull || e.Shield > target.Shield:
		return disagree(e, "a volley does not repair")
	case (e.Hull == 0) != (e.Wait > 0):
		return disagree(e, "a target is destroyed exactly when it has to wait")
	}
	target.Hull, target.Shield = e.Hull, e.Shield
	if e.Hull == 0 {
		s.cells[target.Cell] = 0
		target.Back = tick + fence.Tick(e.Wait)
	}
	return nil
}

// fold applies encoded events in order and stops at the first that does not fit.
func (s *state) fold(tick fence.Tick, events [][]byte) error {
	if tick > fence.MaxNumber {
		return fmt.Errorf("tick %d is over 2^53-1: %w", tick, ErrDisagree)
	}
	for i, p := range events {
		if err := s.foldOne(tick, p); err != nil {
			return fmt.Errorf("tick %d, event %d of %d: %w", tick, i+1, len(events), err)
		}
	}
	return nil
}

func (s *state) foldOne(tick fence.Tick, event []byte) error {
	if bytes.HasPrefix(event, []byte(warp.Prefix)) {
		if s.warps == nil {
			return fmt.Errorf("area %d is not held: %w", s.office(), ErrDisagree)
		}
		if _, err := s.warps.Apply(event); err != nil {
			return fmt.Errorf("%w: %w", ErrDisagree, err)
		}
		return nil
	}
	e, err := DecodeEvent(event)
	if err != nil {
		return err
	}
	return s.apply(tick, &e)
}

// home is that of a ship with such a hop: one that has left no tile is at home.
func (s *state) home(hop uint32, named fence.TileID) fence.TileID {
	if hop == 0 {
		return s.ground.ID()
	}
	return named
}

// notes lets the crossings take note of a ship that is here.
func (s *state) notes(ship *Ship) {
	if s.crossings != nil {
		s.crossings.Enter(s.ground.ID(), ship.Name(), uint64(ship.Hop), *ship)
	}
}

func disagree(e *Event, why string) error {
	return fmt.Errorf("%s of ship %d: %s: %w", e.Kind, e.Ship, why, ErrDisagree)
}
