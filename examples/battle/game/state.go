package game

import (
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// ErrDisagree means that an event does not fit the state it is folded into. Either an event is missing
// before it or the writer and the reader play different rules. The state is then partly folded: restore it.
var ErrDisagree = errors.New("event does not fit the state")

// state is one tile's ships. Rules and View hold one each and change it only through apply, which is
// what makes them agree.
type state struct {
	ships  []Ship            // ship n is at n-1: none is ever removed
	ground []uint32          // per cell: the number of the ship on it, or zero
	owners map[string]uint32 // the ship of each owner

	// under is the owners of the state this one is a draft of; nil for a state of its own. A draft
	// records only the owners it adds.
	under map[string]uint32
}

func newState(cells int) *state {
	return &state{ground: make([]uint32, cells), owners: map[string]uint32{}}
}

// draft makes d an independent copy of s, reusing d's memory.
func (s *state) draft(d *state) {
	d.ships = append(d.ships[:0], s.ships...)
	d.ground = append(d.ground[:0], s.ground...)
	d.under = s.owners
	if d.owners == nil {
		d.owners = map[string]uint32{}
	}
	clear(d.owners)
}

// find is the ship of a number, or nil.
func (s *state) find(id uint32) *Ship {
	if id == 0 || int64(id) > int64(len(s.ships)) {
		return nil
	}
	return &s.ships[id-1]
}

// of is the ship of an owner, or nil.
func (s *state) of(owner string) *Ship {
	id, ok := s.owners[owner]
	if !ok {
		id = s.under[owner] // zero, which no ship has, for an unknown owner
	}
	return s.find(id)
}

// at is the ship on a cell, or nil.
func (s *state) at(cell int) *Ship { return s.find(s.ground[cell]) }

// next is the number of the next ship.
func (s *state) next() uint32 { return uint32(len(s.ships)) + 1 }

func (s *state) free(cell int) bool { return cell < len(s.ground) && s.ground[cell] == 0 }

// full reports whether the tile takes no further ship: each must have a cell to return to.
func (s *state) full() bool { return len(s.ships) >= len(s.ground) }

// apply folds one event of a tick. An error, which matches ErrDisagree, leaves the state as it was.
func (s *state) apply(tick fence.Tick, e *Event) error {
	if e.Kind == Spawned {
		return s.spawn(e)
	}
	ship := s.find(e.Ship)
	if ship == nil {
		return disagree(e, "there is no such ship")
	}
	switch e.Kind {
	case Moved, Warped:
		if !ship.InPlay() {
			return disagree(e, "the ship is destroyed")
		}
		return s.settle(ship, e)
	case Returned:
		if ship.InPlay() || e.Hull == 0 {
			return disagree(e, "the ship is in play, or would return without hull")
		}
		if err := s.settle(ship, e); err != nil {
			return err
		}
		ship.Hull, ship.Shield, ship.Back = e.Hull, e.Shield, 0
		return nil
	case Shielded:
		if !ship.InPlay() || e.Shield <= ship.Shield {
			return disagree(e, "the ship is destroyed, or the shield would not grow")
		}
		ship.Shield = e.Shield
		return nil
	case Fired:
		return s.hit(tick, ship, e)
	}
	return disagree(e, "unknown kind")
}

func (s *state) spawn(e *Event) error {
	switch {
	case e.Ship != s.next():
		return disagree(e, fmt.Sprintf("the next ship is %d", s.next()))
	case s.full() || !s.free(int(e.Cell)):
		return disagree(e, "the cell is not free")
	case e.Hull == 0:
		return disagree(e, "a ship without hull")
	case e.Owner == "" || len(e.Owner) > maxOwner || s.of(e.Owner) != nil:
		return disagree(e, "the owner is missing or has a ship")
	}
	s.ships = append(s.ships, Ship{ID: e.Ship, Owner: e.Owner, Cell: e.Cell, Hull: e.Hull, Shield: e.Shield})
	s.ground[e.Cell] = e.Ship
	s.owners[e.Owner] = e.Ship
	return nil
}

// settle puts a ship on the event's cell, off the one it is on.
func (s *state) settle(ship *Ship, e *Event) error {
	if !s.free(int(e.Cell)) {
		return disagree(e, "the cell is not free")
	}
	if ship.InPlay() {
		s.ground[ship.Cell] = 0
	}
	ship.Cell = e.Cell
	s.ground[e.Cell] = ship.ID
	return nil
}

func (s *state) hit(tick fence.Tick, attacker *Ship, e *Event) error {
	target := s.find(e.Target)
	switch {
	case target == nil || target == attacker || !target.InPlay():
		return disagree(e, "the target is missing, destroyed or the attacker itself")
	case e.Hull > target.Hull || e.Shield > target.Shield:
		return disagree(e, "a volley does not repair")
	case (e.Hull == 0) != (e.Wait > 0):
		return disagree(e, "a target is destroyed exactly when it has to wait")
	}
	target.Hull, target.Shield = e.Hull, e.Shield
	if e.Hull == 0 {
		s.ground[target.Cell] = 0
		target.Back = tick + fence.Tick(e.Wait)
		attacker.Score++
	}
	return nil
}

// fold applies encoded events in order and stops at the first that does not fit.
func (s *state) fold(tick fence.Tick, events [][]byte) error {
	if tick > fence.MaxNumber {
		return fmt.Errorf("tick %d is over 2^53-1: %w", tick, ErrDisagree)
	}
	for i, p := range events {
		e, err := DecodeEvent(p)
		if err == nil {
			err = s.apply(tick, &e)
		}
		if err != nil {
			return fmt.Errorf("tick %d, event %d of %d: %w", tick, i+1, len(events), err)
		}
	}
	return nil
}

func disagree(e *Event, why string) error {
	return fmt.Errorf("%s of ship %d: %s: %w", e.Kind, e.Ship, why, ErrDisagree)
}
