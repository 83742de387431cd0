package game

import (
	"encoding/binary"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of event. Zero is none.
const (
	Spawned  EventKind = 1
	Moved    EventKind = 2 // within its area, as Warped is
	Fired    EventKind = 3
	Shielded EventKind = 4
	Warped   EventKind = 5
	Returned EventKind = 6
	Left     EventKind = 7 // its area, for another one
	Entered  EventKind = 8
	Scored   EventKind = 9
	Paced    EventKind = 10 // of the tile, without a ship: how long a tick lasts from now on
	Departed EventKind = 11 // its tile, for another one
	Sunk     EventKind = 12 // for ever: it came back, and its owner has another ship by now
)

var eventNames = [...]string{"none", "spawned", "moved", "fired", "shielded", "warped", "returned", "left", "entered",
	"scored", "paced", "departed", "sunk"}

// String returns the kind's lower-case name.
func (k EventKind) String() string { return enum.In(k, "event", eventNames[:], 0) }

// Event is one thing that happened to one ship in one area, or to the pace of the tile, with its result rather than its
// cause: hull and shield are what is left, so that a watcher needs no rules to follow it. The area is that of the cell,
// or named.
//
// Encoded: the kind (1 byte), a ship (varint), and
//
//	kind               after the ship
//	Spawned, Entered   cell 2, hull 1, shield 1, score varint, hop varint, home 8 if hop > 0, owner length 1, owner
//	Moved, Warped      cell 2
//	Fired              area 1, target ship varint, its hull 1, its shield 1, wait 1
//	Shielded           area 1, shield 1
//	Returned           cell 2, hull 1, shield 1
//	Left, Scored       area 1
//	Paced              pace 1; its ship is zero
//	Departed           area 1, tile 8
//	Sunk               area 1, hop varint, home 8 if hop > 0, owner length 1, owner; its ship is zero
//
// A cell is big-endian, a varint unsigned LEB128 in its shortest form: a move on an H3 ground takes 5 bytes at most.
//
// The ship of Fired is the attacker, and the area that of the target. Its wait is zero while the target survives;
// otherwise the target's hull is zero, it leaves its cell, and may return that many ticks after this one. A Scored in
// the attacker's area then raises its score by one. Entered is all there is to know of a ship that comes from another
// area of the tile, where a Left says that it has gone; the two may be folded in either order. It is also what comes
// from another tile, and what comes back because the other tile was full.
type Event struct {
	Kind   EventKind
	Area   fence.Area // Fired: the target's; Shielded, Left, Scored, Departed, Sunk
	Ship   uint32
	Target uint32       // Fired
	Score  uint32       // Spawned, Entered
	Cell   uint16       // Spawned, Moved, Warped, Returned, Entered
	Hull   uint8        // Spawned, Returned, Entered; Fired: the target's
	Shield uint8        // Spawned, Shielded, Returned, Entered; Fired: the target's
	Wait   uint8        // Fired: ticks until a destroyed target may return
	Pace   uint8        // Paced: how long a tick lasts, in quarters of the tick interval
	Owner  string       // Spawned, Entered, Sunk; so are the next two
	Hop    uint32       // how often it has left a tile
	Home   fence.TileID // where it has spawned, if hop > 0; else here
	To     fence.TileID // Departed
}

// usualPace is a Pace: a tick lasts one interval.
const usualPace = 4

// areaOn is the area that an event belongs to; zero if it is of the whole tile, or the ground has no such cell.
func (e *Event) areaOn(ground Ground) fence.Area {
	switch e.Kind {
	case Spawned, Moved, Warped, Returned, Entered:
		if int(e.Cell) < ground.Len() {
			return ground.Area(int(e.Cell))
		}
		return 0
	}
	return e.Area
}

// Append appends the encoded event to dst.
func (e *Event) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, byte(e.Kind)), uint64(e.Ship))
	switch e.Kind {
	case Spawned, Entered:
		dst = binary.BigEndian.AppendUint16(dst, e.Cell)
		dst = e.appendName(binary.AppendUvarint(append(dst, e.Hull, e.Shield), uint64(e.Score)))
	case Moved, Warped:
		dst = binary.BigEndian.AppendUint16(dst, e.Cell)
	case Fired:
		dst = binary.AppendUvarint(append(dst, byte(e.Area)), uint64(e.Target))
		dst = append(dst, e.Hull, e.Shield, e.Wait)
	case Shielded:
		dst = append(dst, byte(e.Area), e.Shield)
	case Returned:
		dst = binary.BigEndian.AppendUint16(dst, e.Cell)
		dst = append(dst, e.Hull, e.Shield)
	case Left, Scored:
		dst = append(dst, byte(e.Area))
	case Departed:
		dst = binary.BigEndian.AppendUint64(append(dst, byte(e.Area)), uint64(e.To))
	case Sunk:
		dst = e.appendName(append(dst, byte(e.Area)))
	case Paced:
		dst = append(dst, e.Pace)
	}
	return dst
}

// appendName appends what a ship is called in the world, and how often it has left a tile.
func (e *Event) appendName(dst []byte) []byte {
	if dst = binary.AppendUvarint(dst, uint64(e.Hop)); e.Hop > 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.Home))
	}
	return append(append(dst, byte(len(e.Owner))), e.Owner...)
}

// DecodeEvent reads what Append writes. Anything else is a *fence.FormatError.
func DecodeEvent(p []byte) (Event, error) {
	r := reader{p: p}
	e := Event{Kind: EventKind(r.u8()), Ship: r.number32()}
	switch e.Kind {
	case Spawned, Entered:
		e.Cell, e.Hull, e.Shield = r.u16(), r.u8(), r.u8()
		e.Score = r.number32()
		e.Hop, e.Home, e.Owner = r.name()
	case Moved, Warped:
		e.Cell = r.u16()
	case Fired:
		e.Area, e.Target = fence.Area(r.u8()), r.number32()
		e.Hull, e.Shield, e.Wait = r.u8(), r.u8(), r.u8()
	case Shielded:
		e.Area, e.Shield = fence.Area(r.u8()), r.u8()
	case Returned:
		e.Cell, e.Hull, e.Shield = r.u16(), r.u8(), r.u8()
	case Left, Scored:
		e.Area = fence.Area(r.u8())
	case Departed:
		e.Area, e.To = fence.Area(r.u8()), fence.TileID(r.u64())
	case Sunk:
		e.Area = fence.Area(r.u8())
		if e.Hop, e.Home, e.Owner = r.name(); e.Ship != 0 {
			r.fail("what has sunk is ship %d", e.Ship)
		}
	case Paced:
		if e.Pace = r.u8(); e.Ship != 0 || e.Pace < usualPace {
			r.fail("pace %d of ship %d", e.Pace, e.Ship)
		}
	default:
		r.fail("unknown kind %d", e.Kind)
	}
	if err := r.end("event"); err != nil {
		return Event{}, err
	}
	return e, nil
}
