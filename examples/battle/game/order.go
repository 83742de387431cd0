package game

import (
	"encoding/binary"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

const orderVersion = 1

// OrderKind says what an order asks for.
type OrderKind uint8

// The kinds of order. Zero is none.
const (
	Spawn  OrderKind = 1 // put the actor's ship on the ground
	Move   OrderKind = 2 // step to an adjacent cell
	Volley OrderKind = 3 // card: fire at a ship
	Shield OrderKind = 4 // card: charge the shield
	Warp   OrderKind = 5 // card: jump to a cell
)

var orderNames = [...]string{"none", "spawn", "move", "volley", "shield", "warp"}

// String returns the kind's lower-case name.
func (k OrderKind) String() string {
	if int(k) < len(orderNames) {
		return orderNames[k]
	}
	return fmt.Sprintf("order(%d)", uint8(k))
}

// Cost is the price of a card in energy, which the gateway spends before the tile sees the order; zero
// for what is free.
func (k OrderKind) Cost() int64 {
	switch k {
	case Volley:
		return 2
	case Shield:
		return 3
	case Warp:
		return 5
	}
	return 0
}

// Card reports whether orders of this kind are paid for, and so need an action ID.
func (k OrderKind) Card() bool { return k.Cost() > 0 }

// Order is what an actor wants his ship to do: the body of a tile.Intent. The ship is not named: it is
// the one of the intent's authenticated actor.
//
// Encoded, big-endian:
//
//	offset  width  field
//	0       1      version, 1
//	1       1      kind
//	2       2      Move, Warp: cell
//	2       4      Volley: target ship
//
// Spawn and Shield end after the kind.
type Order struct {
	Kind   OrderKind
	Cell   uint16 // Move, Warp
	Target uint32 // Volley: the number of a ship
}

// Encode returns the order's bytes, 2 to 6 of them.
func (o Order) Encode() []byte {
	b := make([]byte, 2, 6)
	b[0], b[1] = orderVersion, byte(o.Kind)
	switch o.Kind {
	case Move, Warp:
		b = binary.BigEndian.AppendUint16(b, o.Cell)
	case Volley:
		b = binary.BigEndian.AppendUint32(b, o.Target)
	}
	return b
}

// DecodeOrder reads what Encode writes. Anything else is a *fence.FormatError.
func DecodeOrder(p []byte) (Order, error) {
	r := reader{p: p}
	if v := r.u8(); v != orderVersion {
		r.fail("version %d, this reader knows %d", v, orderVersion)
	}
	o := Order{Kind: OrderKind(r.u8())}
	switch o.Kind {
	case Spawn, Shield:
	case Move, Warp:
		o.Cell = r.u16()
	case Volley:
		o.Target = r.u32()
	default:
		r.fail("unknown kind %d", o.Kind)
	}
	if err := r.end("order"); err != nil {
		return Order{}, err
	}
	return o, nil
}

// reader takes big-endian fields off the front of p; after the first failure it returns zeros.
type reader struct {
	p   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.p = nil
}

// take returns the next n bytes, or nil when there are fewer.
func (r *reader) take(n int) []byte {
	if len(r.p) < n {
		r.fail("cut short")
		return nil
	}
	b := r.p[:n]
	r.p = r.p[n:]
	return b
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// owner reads a length byte and a name of 1 to maxOwner bytes.
func (r *reader) owner() string {
	n := int(r.u8())
	if r.err == nil && (n == 0 || n > maxOwner) {
		r.fail("owner of %d bytes, want 1 to %d", n, maxOwner)
	}
	return string(r.take(n))
}

// end returns what went wrong, bytes left over included, as a *fence.FormatError; nil if nothing did.
func (r *reader) end(what string) error {
	if r.err == nil && len(r.p) > 0 {
		r.fail("%d bytes after the end", len(r.p))
	}
	if r.err != nil {
		return &fence.FormatError{What: what, Detail: r.err.Error()}
	}
	return nil
}
