package game

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/region"
	"github.com/tilefence/tilefence/tile/warp"
)

// What becomes of a ship that sails across a border: the three branches of tile.TransferRules. Its departure carries
// the cell that it leaves, in two bytes, and the Entered by which it enters the other tile, or its own again.

// sail is a ship's move, across the border.
func (t *turn) sail(a *act) stream.Outcome {
	if t.moved[a.ship] || !t.draft.find(a.ship).InPlay() { // it may be gone already
		return stream.Fizzled
	}
	t.moved[a.ship] = true
	ship := *t.draft.find(a.ship)
	to := a.order.Tile
	if !slices.Contains(t.draft.ground.Across(int(ship.Cell)), region.Place{Tile: to, Cell: int(a.order.Cell)}) {
		return stream.Fizzled
	}
	if t.room(to, maxPayload) <= 0 { // the border is closed
		return stream.Fizzled
	}
	t.depart(&ship, to, a.order.Cell, nil)
	return stream.Applied
}

// depart takes a ship out of the tile, by a fleet or by itself. Cell is where it enters the other one.
func (t *turn) depart(ship *Ship, to fence.TileID, cell uint16, by *warp.Leave) {
	e := Event{Kind: Entered, Cell: cell, Hull: ship.Hull, Shield: ship.Shield, Score: ship.Score, Owner: ship.Owner,
		Home: ship.Home, Hop: ship.Hop + 1}
	payload := e.Append(binary.BigEndian.AppendUint16(nil, ship.Cell))
	if by != nil {
		payload = by.Payload(payload)
	}
	t.out.Departures = append(t.out.Departures, stream.Departure{To: to, Entity: ship.Name(), Actor: ship.Owner,
		Payload: payload})
	t.away++
	t.emit(Event{Kind: Departed, Area: t.area(ship.Cell), Ship: ship.ID, To: to})
}

// room is for how many more ships the border is open.
func (t *turn) room(to fence.TileID, bytes int) int {
	if t.in.Room == nil {
		return 0
	}
	n := t.in.Room(to, bytes)
	for i := range t.out.Departures {
		if t.out.Departures[i].To == to {
			n--
		}
	}
	return n
}

// maxPayload is a departure's payload, at most.
const maxPayload = 2 + 32 + MaxOwner

// passage reads the payload of a departure.
func passage(payload []byte) (from uint16, e Event, err error) {
	if len(payload) < 2 {
		return 0, e, &fence.FormatError{What: "passage", Detail: "cut short"}
	}
	e, err = DecodeEvent(payload[2:])
	if err == nil && (e.Kind != Entered || e.Hull == 0) {
		err = &fence.FormatError{What: "passage", Detail: "no ship enters"}
	}
	return binary.BigEndian.Uint16(payload), e, err
}

// arrive takes ships of other tiles, or sends them back.
func (t *turn) arrive() {
	for i := range t.in.Arrivals {
		a := &t.in.Arrivals[i]
		if t.warp.Arrive(*a) {
			t.out.Verdicts = append(t.out.Verdicts, tile.Verdict{})
			continue
		}
		_, e, err := passage(warp.Own(a.Payload))
		var v tile.Verdict
		switch {
		case err == nil && t.warp.Seated(*a):
			t.take(&e, min(e.Cell, uint16(len(t.draft.cells)-1)))
		case err != nil || int(e.Cell) >= len(t.draft.cells):
			v.Refused = "it has no cell here"
		case t.draft.number(e.Owner) != 0:
			v.Refused = "its owner has a ship here"
		case t.draft.full(t.area(e.Cell)) || t.crowded():
			v.Refused = "the water is full"
		default:
			t.enter(&e, e.Cell)
		}
		t.out.Verdicts = append(t.out.Verdicts, v)
	}
}

// comeBack takes the ships that other tiles have sent back. There is room: they count when the tile is crowded. A ship
// whose owner has another one here by now sinks.
func (t *turn) comeBack() {
	for i := range t.in.Returns {
		t.away--
		if t.warp.Return(t.in.Returns[i]) {
			continue
		}
		from, e, err := passage(warp.Own(t.in.Returns[i].Payload))
		if err != nil {
			panic(fmt.Sprintf("game: what comes back did not leave: %v", err))
		}
		t.take(&e, from)
	}
}

// take puts a ship for which a place was kept on a cell, or where there is room.
func (t *turn) take(e *Event, cell uint16) {
	if t.draft.number(e.Owner) != 0 {
		t.emit(Event{Kind: Sunk, Area: t.area(cell), Owner: e.Owner, Home: e.Home, Hop: e.Hop})
		return
	}
	for a := fence.Area(1); t.draft.full(t.area(cell)); a++ {
		first, _ := t.draft.ground.Span(a)
		cell = uint16(first)
	}
	t.enter(e, cell)
}

// enter puts a ship on a cell or, if that is taken, on another one of the area.
func (t *turn) enter(e *Event, cell uint16) {
	e.Ship, e.Cell = t.number(), cell
	if !t.draft.free(int(cell)) {
		e.Cell = t.freeCell(cell, nameKey(e.Owner))
	}
	t.emit(*e)
}

// crowded reports whether the tile takes no further ship.
func (t *turn) crowded() bool { return t.places() < 1 }

// places is how many more ships the tile takes: those under way may come back, and some have seats.
func (t *turn) places() int { return len(t.draft.cells) - t.draft.count() - t.away - t.warp.Seats() }

// bore reports whether an actor's ship has spawned in this tile, wherever it is now.
func (t *turn) bore(actor string) bool {
	return slices.ContainsFunc(t.before.areas, func(a area) bool { return slices.Contains(a.born, actor) })
}

// number is the lowest number that no ship has.
func (t *turn) number() uint32 { return uint32(1 + slices.Index(t.draft.in[1:], 0)) }

// Census counts the ships of a world, each by its owner's name: one that has spawned is afloat in one tile, or has sunk
// in one, once no ship is under way.
type Census struct {
	Born, Afloat, Sunk int

	fleets  []warp.Tally
	missing map[string]int // ships that have spawned and were not found, or less than none
}

// Add adds a tile, all of whose areas the view holds.
func (c *Census) Add(v *View) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if c.missing == nil {
		c.missing = map[string]int{}
	}
	c.fleets = append(c.fleets, v.state.warps.Tally())
	for i := range v.state.areas {
		a := &v.state.areas[i]
		c.Born, c.Sunk, c.Afloat = c.Born+len(a.born), c.Sunk+len(a.sunk), c.Afloat+len(a.ships)
		for _, name := range a.born {
			c.missing[name]++
		}
		for _, name := range a.sunk {
			c.missing[name]--
		}
		for j := range a.ships {
			c.missing[a.ships[j].Owner]--
		}
	}
}

// Fleets counts those that have gone, and those that were called off. None is split: all ships of each have gone, or
// none.
func (c *Census) Fleets() (gone, calledOff uint64, whole bool) {
	for _, t := range c.fleets {
		gone, calledOff = gone+t.Gone, calledOff+t.CalledOff
	}
	return gone, calledOff, warp.Whole(c.fleets...)
}

// Wrong names the ships that are in no tile, and those that are in more than one.
func (c *Census) Wrong() (lost, doubled []string) {
	for name, n := range c.missing {
		if n > 0 {
			lost = append(lost, name)
		} else if n < 0 {
			doubled = append(doubled, name)
		}
	}
	slices.Sort(lost)
	slices.Sort(doubled)
	return lost, doubled
}
