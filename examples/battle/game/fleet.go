package game

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/warp"
)

// A fleet is ships of one or several tiles that go to another tile together, or stay: package warp. The flagship's tile
// leads. A ship that waits for the others does nothing, and no volley hits it. A flagship takes along ships that have
// left a tile before: those of captains who know one tile stay there.

// gatherWithin is how many ticks all tiles of a fleet have to agree. Some may need another owner first.
const gatherWithin = 40

// gather begins a fleet: one a tick.
func (t *turn) gather(a *act) stream.Outcome {
	flagship := t.draft.find(a.ship)
	switch {
	case !t.draft.ground.Reaches(a.order.Tile):
		return stream.Rejected
	case flagship == nil || !flagship.InPlay() || t.fleet != "":
		return stream.Fizzled
	}
	here := t.draft.ground.ID()
	parts := []warp.Part{{Entity: flagship.Name(), From: here, To: a.order.Tile}}
	for _, m := range a.order.Fleet {
		if m.Tile != here && !t.draft.ground.Reaches(m.Tile) {
			return stream.Rejected
		}
		parts = append(parts, warp.Part{Entity: m.Name, From: m.Tile, To: a.order.Tile})
	}
	t.fleet = flagship.Name()
	id := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(here)), uint64(t.tick))
	if t.warp.Begin(base64.RawURLEncoding.EncodeToString(id), t.tick+gatherWithin, parts) != nil {
		return stream.Rejected
	}
	if !t.warp.Held(t.fleet) { // a ship of this tile does not come along
		return stream.Fizzled
	}
	return stream.Applied
}

// agrees reports whether ships of this tile go, and whether there is room for those that come.
func (t *turn) agrees(a warp.Ask) bool {
	for _, p := range a.Leave {
		ship := t.named(p.Entity)
		if ship == nil || !ship.InPlay() || ship.Hop == 0 && p.Entity != t.fleet {
			return false
		}
	}
	for _, p := range a.Arrive {
		if owner, _ := ownerOf(p.Entity); t.draft.number(owner) != 0 {
			return false
		}
	}
	return len(a.Arrive) <= t.places()
}

// held reports whether a ship waits for its fleet.
func (t *turn) held(id uint32) bool {
	if len(t.warp.Events) == 0 && t.before.warps.Empty() {
		return false
	}
	ship := t.draft.find(id)
	return ship != nil && t.warp.Held(ship.Name())
}

// weighAnchor ends the tick's part in fleets, and lets the ships go that may.
func (t *turn) weighAnchor() {
	leave := t.warp.Done(maxPayload)
	t.out.Departures = append(t.out.Departures, t.warp.Departures...)
	for i := range leave {
		ship := *t.named(leave[i].Entity)
		t.depart(&ship, leave[i].To, ship.Cell, &leave[i])
	}
	t.out.Events = append(t.out.Events, t.warp.Events...)
}

// named is the ship of a name, or nil.
func (t *turn) named(name string) *Ship {
	owner, ok := ownerOf(name)
	if ship := t.draft.of(owner); ok && ship != nil && ship.Name() == name {
		return ship
	}
	return nil
}
