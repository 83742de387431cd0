package game

import (
	"encoding/binary"
	"fmt"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of event. Zero is none.
const (
	Spawned  EventKind = 1
	Moved    EventKind = 2
	Fired    EventKind = 3
	Shielded EventKind = 4
	Warped   EventKind = 5
	Returned EventKind = 6
)

var eventNames = [...]string{"none", "spawned", "moved", "fired", "shielded", "warped", "returned"}

// String returns the kind's lower-case name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is one thing that happened to one ship, with its result rather than its cause: hull and shield
// are what is left, so that a watcher needs no rules to follow it.
//
// Encoded, big-endian; every event starts with its kind (1 byte) and a ship (4 bytes):
//
//	kind      bytes  after the ship
//	Spawned    10+n  cell 2, hull 1, shield 1, owner length n 1, owner n
//	Moved      7     cell 2
//	Fired      12    target ship 4, its hull 1, its shield 1, wait 1
//	Shielded   6     shield 1
//	Warped     7     cell 2
//	Returned   9     cell 2, hull 1, shield 1
//
// The ship of Fired is the attacker. Its wait is zero while the target survives; otherwise the target's
// hull is zero, it leaves its cell, may return that many ticks after this one, and the attacker's score
// rises by one.
type Event struct {
	Kind   EventKind
	Ship   uint32
	Target uint32 // Fired
	Cell   uint16 // Spawned, Moved, Warped, Returned
	Hull   uint8  // Spawned, Returned; Fired: the target's
	Shield uint8  // Spawned, Shielded, Returned; Fired: the target's
	Wait   uint8  // Fired: ticks until a destroyed target may return
	Owner  string // Spawned
}

// Append appends the encoded event to dst.
func (e *Event) Append(dst []byte) []byte {
	dst = append(dst, byte(e.Kind))
	dst = binary.BigEndian.AppendUint32(dst, e.Ship)
	switch e.Kind {
	case Spawned:
		dst = binary.BigEndian.AppendUint16(dst, e.Cell)
		dst = append(dst, e.Hull, e.Shield, byte(len(e.Owner)))
		dst = append(dst, e.Owner...)
	case Moved, Warped:
		dst = binary.BigEndian.AppendUint16(dst, e.Cell)
	case Fired:
		dst = binary.BigEndian.AppendUint32(dst, e.Target)
		dst = append(dst, e.Hull, e.Shield, e.Wait)
	case Shielded:
		dst = append(dst, e.Shield)
	case Returned:
		dst = binary.BigEndian.AppendUint16(dst, e.Cell)
		dst = append(dst, e.Hull, e.Shield)
	}
	return dst
}

// DecodeEvent reads what Append writes. Anything else is a *fence.FormatError.
func DecodeEvent(p []byte) (Event, error) {
	r := reader{p: p}
	e := Event{Kind: EventKind(r.u8()), Ship: r.u32()}
	switch e.Kind {
	case Spawned:
		e.Cell, e.Hull, e.Shield = r.u16(), r.u8(), r.u8()
		e.Owner = r.owner()
	case Moved, Warped:
		e.Cell = r.u16()
	case Fired:
		e.Target = r.u32()
		e.Hull, e.Shield, e.Wait = r.u8(), r.u8(), r.u8()
	case Shielded:
		e.Shield = r.u8()
	case Returned:
		e.Cell, e.Hull, e.Shield = r.u16(), r.u8(), r.u8()
	default:
		r.fail("unknown kind %d", e.Kind)
	}
	if err := r.end("event"); err != nil {
		return Event{}, err
	}
	return e, nil
}
