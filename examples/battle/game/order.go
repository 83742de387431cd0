package game

import (
	"encoding/binary"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

const orderVersion = 2

// OrderKind says what an order asks for.
type OrderKind uint8

// The kinds of order. Zero is none.
const (
	Spawn  OrderKind = 1 // put the actor's ship on a cell, or on a free one of the same area
	Move   OrderKind = 2 // step to an adjacent cell
	Volley OrderKind = 3 // card: fire at a ship
	Shield OrderKind = 4 // card: charge the shield
	Warp   OrderKind = 5 // card: jump to a cell
	Sail   OrderKind = 6 // step across the border to a cell that touches the ship's
	Fleet  OrderKind = 7 // go to another tile together with other ships, or not at all
)

var orderNames = [...]string{"none", "spawn", "move", "volley", "shield", "warp", "sail", "fleet"}

// String returns the kind's lower-case name.
func (k OrderKind) String() string { return enum.In(k, "order", orderNames[:], 0) }

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
//	0       1      version, 2
//	1       1      kind
//	2       2      Spawn, Move, Warp, Sail: cell
//	2       4      Volley: target ship
//	4       8      Sail: the cell's tile
//	2       8      Fleet: the tile that it goes to
//	10             then each ship but the actor's own, up to 15: its tile 8, name length 1, name
//
// Shield ends after the kind.
type Order struct {
	Kind   OrderKind
	Cell   uint16       // Spawn, Move, Warp, Sail
	Target uint32       // Volley: the number of a ship
	Tile   fence.TileID // Sail, Fleet
	Fleet  []Member     // Fleet: the other ships
}

// Member is a ship of a fleet.
type Member struct {
	Tile fence.TileID // where it is
	Name string       // Ship.Name
}

// MaxFleet is the ships of a fleet, the flagship included.
const MaxFleet = 16

// Encode returns the order's bytes: 2 to 12 of them, and more of a Fleet.
func (o Order) Encode() []byte {
	b := make([]byte, 2, 12)
	b[0], b[1] = orderVersion, byte(o.Kind)
	switch o.Kind {
	case Spawn, Move, Warp:
		b = binary.BigEndian.AppendUint16(b, o.Cell)
	case Volley:
		b = binary.BigEndian.AppendUint32(b, o.Target)
	case Fleet:
		b = binary.BigEndian.AppendUint64(b, uint64(o.Tile))
		for _, m := range o.Fleet {
			b = binary.BigEndian.AppendUint64(b, uint64(m.Tile))
			b = append(append(b, byte(len(m.Name))), m.Name...)
		}
	case Sail:
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(b, o.Cell), uint64(o.Tile))
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
	case Shield:
	case Spawn, Move, Warp:
		o.Cell = r.u16()
	case Volley:
		o.Target = r.u32()
	case Sail:
		o.Cell, o.Tile = r.u16(), fence.TileID(r.u64())
	case Fleet:
		for o.Tile = fence.TileID(r.u64()); len(r.p) > 0; {
			if len(o.Fleet) == MaxFleet-1 {
				r.fail("more than %d ships", MaxFleet)
			}
			o.Fleet = append(o.Fleet, Member{fence.TileID(r.u64()), string(r.take(int(r.u8())))})
		}
	default:
		r.fail("unknown kind %d", o.Kind)
	}
	if err := r.end("order"); err != nil {
		return Order{}, err
	}
	return o, nil
}
