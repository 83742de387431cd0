package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"unicode/utf8"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

const (
	version = 1

	kindEntries  = 1
	kindFarewell = 2

	headLen  = 2
	sumLen   = 4
	envelope = headLen + sumLen
	minEntry = 11 // the first of a message, released at a low epoch

	// maxState bounds a message. memberlist carries at most 20 MiB.
	maxState = 16 << 20

	// maxName is what Node.New makes at most of a contact.
	maxName = fence.MaxContact + nameSuffix
)

// errMalformed is wrapped by every refusal of decode.
var errMalformed = errors.New("malformed gossip message")

func malformed(why string) error { return fmt.Errorf("%w: %s", errMalformed, why) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func begin(kind byte, size int) []byte { return append(make([]byte, 0, size), version, kind) }

func seal(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// encodeFarewell is the message of a member that leaves.
func encodeFarewell(name string) []byte {
	return seal(append(begin(kindFarewell, envelope+len(name)), name...))
}

// encodeEntries writes valid entries, which ascend strictly by tile, until all are written or the next one
// would make the message longer than limit. It returns how many it wrote. With none written, the message
// is one of no entries.
func encodeEntries(entries []route.Entry, limit int) (msg []byte, written int) {
	b := begin(kindEntries, min(limit, envelope+9+12*len(entries)))
	shift := commonShift(entries)
	index := make(map[string]uint64) // contacts by the order of their first mention, from 1
	previous := ""                   // neighbours in the map have one owner more often than not
	var k uint64
	for i, e := range entries {
		mark := len(b)
		if i == 0 {
			b = append(b, shift)
			b = binary.BigEndian.AppendUint64(b, uint64(e.Tile))
		} else {
			b = binary.AppendUvarint(b, uint64(e.Tile-entries[i-1].Tile)>>shift)
		}
		b = binary.AppendUvarint(b, uint64(e.Epoch))
		known := true
		switch {
		case !e.Held():
			b = append(b, 0)
		case e.Contact == previous:
			b = binary.AppendUvarint(b, k)
		default:
			if k, known = index[e.Contact]; !known {
				k = uint64(len(index)) + 1
			}
			b = binary.AppendUvarint(b, k)
			if !known {
				b = append(b, byte(len(e.Contact)))
				b = append(b, e.Contact...)
			}
		}
		if len(b)+sumLen > limit {
			return seal(b[:mark]), i
		}
		if e.Held() {
			if !known {
				index[e.Contact] = k
			}
			previous = e.Contact
		}
	}
	return seal(b), len(entries)
}

// commonShift is how many low bits all tiles have in common.
func commonShift(entries []route.Entry) byte {
	var differ uint64
	for i := 1; i < len(entries); i++ {
		differ |= uint64(entries[i].Tile ^ entries[0].Tile)
	}
	if differ == 0 {
		return 0
	}
	return byte(bits.TrailingZeros64(differ))
}

// message is one that was decoded.
type message struct {
	entries []route.Entry // all valid, ascending by tile
	leaving string        // a member's name; empty: the message has entries
}

// decode reads what encodeEntries and encodeFarewell write. It keeps nothing of b.
func decode(b []byte) (message, error) {
	if len(b) < envelope || len(b) > maxState {
		return message{}, malformed(fmt.Sprintf("%d bytes", len(b)))
	}
	if b[0] != version {
		return message{}, malformed(fmt.Sprintf("version %d, this process speaks version %d", b[0], version))
	}
	content := b[:len(b)-sumLen]
	if crc32.Checksum(content, castagnoli) != binary.BigEndian.Uint32(b[len(content):]) {
		return message{}, malformed("wrong sum")
	}
	body := content[headLen:]
	switch b[1] {
	case kindEntries:
		entries, err := decodeEntries(body)
		return message{entries: entries}, err
	case kindFarewell:
		if len(body) == 0 || len(body) > maxName || !utf8.Valid(body) {
			return message{}, malformed("farewell without a name")
		}
		return message{leaving: string(body)}, nil
	}
	return message{}, malformed(fmt.Sprintf("unknown kind %d", b[1]))
}

func decodeEntries(body []byte) ([]route.Entry, error) {
	if len(body) == 0 {
		return nil, nil
	}
	if len(body) < 9 {
		return nil, malformed("no first tile")
	}
	shift := body[0]
	tile := binary.BigEndian.Uint64(body[1:])
	if shift > 63 || tile == 0 {
		return nil, malformed("a shift or first tile out of range")
	}
	r := reader{rest: body[9:]}
	entries := make([]route.Entry, 0, 1+len(r.rest)/5) // four to seven bytes are usual
	var contacts []string
	for {
		e := route.Entry{Tile: fence.TileID(tile), Epoch: fence.Epoch(r.varint())}
		if e.Epoch == 0 || e.Epoch > fence.MaxNumber {
			return nil, malformed("an epoch out of range")
		}
		k := r.varint()
		if k == uint64(len(contacts))+1 {
			contacts = append(contacts, r.contact())
		}
		switch {
		case r.bad:
			return nil, malformed("a truncated or oversized field")
		case k > uint64(len(contacts)):
			return nil, malformed("a contact that was not named")
		case k > 0:
			e.Contact = contacts[k-1]
		}
		entries = append(entries, e)
		if len(r.rest) == 0 {
			return entries, nil
		}
		step := r.varint()
		if step == 0 || step > (1<<64-1-tile)>>shift {
			return nil, malformed("tiles that do not ascend")
		}
		tile += step << shift
	}
}

// reader takes fields off the front. After a field that is not there, bad is set and all fields are zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) varint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || (n > 1 && r.rest[n-1] == 0) {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) contact() string {
	if len(r.rest) == 0 || len(r.rest) < 1+int(r.rest[0]) {
		r.rest, r.bad = nil, true
		return ""
	}
	contact := string(r.rest[1 : 1+int(r.rest[0])])
	r.rest = r.rest[1+len(contact):]
	r.bad = r.bad || route.ValidateContact(contact) != nil
	return contact
}
