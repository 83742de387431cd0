package game

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/warp"
)

const snapshotVersion = 4

// Digest is the SHA-256 of canonical bytes of a state: equal digests mean equal states.
type Digest [sha256.Size]byte

// String returns the digest as 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler for the form of String.
func (d *Digest) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(d[:], text); err != nil || n != len(d) || len(text) != hex.EncodedLen(len(d)) {
		return &fence.FormatError{What: "digest", Detail: "want 64 hexadecimal digits"}
	}
	return nil
}

// encode returns the canonical snapshot of the areas held, without the office; see Rules.Snapshot for its layout.
func (s *state) encode() []byte {
	var list, part []byte
	for a := range s.areas {
		part = s.areas[a].encode(part[:0])
		list = fence.AppendPart(list, fence.Area(a), part)
	}
	return list
}

// encodeWarps appends the office's part.
func (s *state) encodeWarps(list []byte) ([]byte, error) {
	part, err := json.Marshal(s.warps)
	if err != nil || string(part) == "{}" {
		return list, err
	}
	return fence.AppendPart(list, s.office(), part), nil
}

// encode appends the area's part of a snapshot; nothing for an area of which there is nothing to say.
func (a *area) encode(b []byte) []byte {
	if len(a.ships)+len(a.born)+len(a.sunk) == 0 {
		return b
	}
	b = append(b, snapshotVersion)
	for _, names := range [][]string{a.born, a.sunk} {
		b = binary.AppendUvarint(b, uint64(len(names)))
		for _, name := range names {
			b = append(append(b, byte(len(name))), name...)
		}
	}
	for i := range a.ships {
		ship := &a.ships[i]
		b = binary.AppendUvarint(b, uint64(ship.ID))
		b = binary.BigEndian.AppendUint16(b, ship.Cell)
		b = append(b, ship.Hull, ship.Shield)
		b = binary.AppendUvarint(b, uint64(ship.Score))
		b = binary.AppendUvarint(b, uint64(ship.Back))
		name := Event{Home: ship.Home, Hop: ship.Hop, Owner: ship.Owner}
		b = name.appendName(b)
	}
	return b
}

func (s *state) digest() Digest { return sha256.Sum256(s.encode()) }

// digests is the digest of each area that is held: of its part's content.
func (s *state) digests() map[fence.Area]Digest {
	all := map[fence.Area]Digest{}
	var part []byte
	for a := range s.areas {
		if s.areas[a].held {
			part = s.areas[a].encode(part[:0])
			all[fence.Area(a)] = sha256.Sum256(part)
		}
	}
	return all
}

// open holds some areas as a snapshot has them. What encode cannot have written is a *fence.FormatError, after which
// the state is of no use.
func (s *state) open(snapshot []byte, areas fence.AreaSet) error {
	for a := range s.areas {
		if a > 0 && areas.Has(fence.Area(a)) {
			s.clear(fence.Area(a))
			s.areas[a].held = true
		}
	}
	if areas.Has(s.office()) {
		s.warps = &warp.State{}
	}
	for p := range fence.Parts(snapshot) {
		switch {
		case p.Content != nil && p.Area == s.office() && areas.Has(p.Area):
			if err := json.Unmarshal(p.Content, s.warps); err != nil {
				return &fence.FormatError{What: "game snapshot, its fleets", Detail: err.Error()}
			}
			continue
		case p.Content == nil || p.Area == 0 || p.Area > s.office():
			return &fence.FormatError{What: "game snapshot", Detail: "not a list of this ground's areas"}
		case !areas.Has(p.Area):
			continue
		}
		if err := s.read(p.Area, p.Content); err != nil {
			return err
		}
	}
	return nil
}

// read adds the ships of an area's part.
func (s *state) read(a fence.Area, content []byte) error {
	r := reader{p: content}
	if v := r.u8(); v != snapshotVersion {
		r.fail("version %d, this reader knows %d", v, snapshotVersion)
	}
	s.areas[a].born, s.areas[a].sunk = r.owners(), r.owners()
	if r.err == nil && len(s.areas[a].born)+len(s.areas[a].sunk)+len(r.p) == 0 {
		r.fail("a part that says nothing")
	}
	for last := uint32(0); len(r.p) > 0; {
		ship := Ship{ID: r.number32(), Cell: r.u16(), Hull: r.u8(), Shield: r.u8(), Score: r.number32(),
			Back: fence.Tick(r.number())}
		ship.Hop, ship.Home, ship.Owner = r.name()
		ship.Home = s.home(ship.Hop, ship.Home)
		why := ""
		switch {
		case r.err != nil:
		case ship.ID <= last:
			why = "numbers do not ascend"
		case int(ship.Cell) >= s.ground.Len() || s.ground.Area(int(ship.Cell)) != a:
			why = "the area has no such cell"
		case ship.InPlay() == (ship.Back > 0):
			why = "it waits to return exactly when destroyed"
		case ship.Back > fence.MaxNumber+255:
			why = "it returns after the last tick"
		default:
			why = s.put(a, ship)
		}
		if why != "" {
			r.fail("ship %d: %s", ship.ID, why)
		}
		last = ship.ID
	}
	return r.end(fmt.Sprintf("game snapshot of area %d", a))
}

// complete reports whether the state is that of a whole tile: each ship in one area, each owner with one ship.
func (s *state) complete() bool {
	for a := range s.areas {
		for i := range s.areas[a].ships {
			ship := &s.areas[a].ships[i]
			if s.in[ship.ID] != fence.Area(a) || s.owners[ship.Owner] != ship.ID {
				return false
			}
		}
	}
	return true
}
