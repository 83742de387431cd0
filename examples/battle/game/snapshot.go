package game

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/tilefence/tilefence/fence"
)

const (
	snapshotVersion = 1
	snapshotHead    = 5  // bytes before the first ship
	snapshotShip    = 17 // bytes of a ship before its owner's name
)

// Digest is the SHA-256 of a state's canonical snapshot: equal digests mean equal states.
type Digest [sha256.Size]byte

// String returns the digest as 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// encode returns the canonical snapshot; see Rules.Snapshot for its layout.
func (s *state) encode() []byte {
	n := snapshotHead
	for i := range s.ships {
		n += snapshotShip + len(s.ships[i].Owner)
	}
	b := make([]byte, 0, n)
	b = append(b, snapshotVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.ground)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.ships)))
	for i := range s.ships {
		ship := &s.ships[i]
		b = binary.BigEndian.AppendUint16(b, ship.Cell)
		b = append(b, ship.Hull, ship.Shield)
		b = binary.BigEndian.AppendUint32(b, ship.Score)
		b = binary.BigEndian.AppendUint64(b, uint64(ship.Back))
		b = append(b, byte(len(ship.Owner)))
		b = append(b, ship.Owner...)
	}
	return b
}

func (s *state) digest() Digest { return sha256.Sum256(s.encode()) }

// decodeState reads a canonical snapshot of a ground with that many cells; nil is an empty ground. What
// encode cannot have written is a *fence.FormatError.
func decodeState(p []byte, cells int) (*state, error) {
	s := newState(cells)
	if p == nil {
		return s, nil
	}
	r := reader{p: p}
	if v := r.u8(); v != snapshotVersion {
		r.fail("version %d, this reader knows %d", v, snapshotVersion)
	}
	if n := int(r.u16()); n != cells {
		r.fail("written for %d cells, this ground has %d", n, cells)
	}
	n := int(r.u16())
	switch {
	case n > len(r.p)/snapshotShip:
		r.fail("%d ships do not fit into %d bytes", n, len(r.p))
	case n > cells:
		r.fail("%d ships on %d cells", n, cells)
	}
	for range n {
		ship := r.ship()
		if r.err != nil {
			break
		}
		if why := s.admit(ship); why != "" {
			r.fail("ship %d: %s", s.next(), why)
		}
	}
	if err := r.end("game snapshot"); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *reader) ship() Ship {
	return Ship{
		Cell: r.u16(), Hull: r.u8(), Shield: r.u8(), Score: r.u32(),
		Back: fence.Tick(r.u64()), Owner: r.owner(),
	}
}

// admit adds a ship read from a snapshot; a non-empty answer says why it cannot be.
func (s *state) admit(ship Ship) string {
	switch {
	case int(ship.Cell) >= len(s.ground):
		return "no such cell"
	case ship.InPlay() == (ship.Back > 0):
		return "waits to return exactly when destroyed"
	case ship.Back > fence.MaxNumber+255:
		return "returns after the last tick"
	case ship.InPlay() && s.ground[ship.Cell] != 0:
		return "the cell is taken"
	case s.owners[ship.Owner] != 0:
		return "the owner has another ship"
	}
	ship.ID = s.next()
	s.ships = append(s.ships, ship)
	s.owners[ship.Owner] = ship.ID
	if ship.InPlay() {
		s.ground[ship.Cell] = ship.ID
	}
	return ""
}
