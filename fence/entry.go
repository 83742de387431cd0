package fence

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/tilefence/tilefence/internal/enum"
)

// Kind says what an entry is.
type Kind uint8

// The kinds. Zero is none of them.
const (
	KindBatch  Kind = 1 // a tick's batch, or the first entry of an owner
	KindRebase Kind = 2 // the state jumps to the snapshot at this position; see Rebase
)

// String returns the kind's lower-case name.
func (k Kind) String() string { return enum.Name(k, "kind", "batch", "rebase") }

// LogValue implements slog.LogValuer with the form of String.
func (k Kind) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Entry is one committed batch. The owner encodes it once, as a frame. The stream and the journal store the
// frame, the bridge publishes it as it is, and the relay sends its watchers' part.
//
// A frame, in this order; varints are unsigned LEB128 in their shortest form, the rest is big-endian:
//
//	version     1 byte, 1
//	kind        1 byte: 1 batch, 2 rebase
//	tile        8 bytes
//	chain       8 bytes
//	prev chain  8 bytes
//	epoch       varint
//	seq         varint
//	prev epoch  varint
//	prev seq    varint
//	tick        varint
//	at          varint, milliseconds since 1970 by the owner's clock
//	payload     varint length, bytes: for watchers
//	private     the rest: for owners only
type Entry struct {
	Tile TileID
	Kind Kind
	Position
	Prev    Position  // the position this entry follows; the beginning for a rebase, which follows nothing
	Tick    Tick      // the tick that made it
	At      time.Time // when the owner formed it, by its own clock, in milliseconds; zero: it did not say
	Payload []byte    // what watchers are sent: a list of parts, see Part
	Private []byte    // what only owners read: claims, outcomes of actions

	// Hidden stands for Private where it was left out: its Sum. Rest stands for the parts of Payload that were left
	// out: their SumParts. Both are zero in an entry that is whole.
	Hidden, Rest uint64

	// Frame is the encoded entry. Decoded entries have it, and share its memory.
	Frame []byte
}

// FrameVersion is the first byte of every frame.
const FrameVersion = 1

// MaxFrame is the most bytes of a frame.
const MaxFrame = MaxPayload + frameHead

// frameHead is the most bytes of a frame before its payload: the fixed part and seven varints.
const frameHead = 26 + 7*binary.MaxVarintLen64

// Sum is the digest of the private part, or of one part of the payload, that an entry's chain covers: the first eight
// bytes of SHA-256, big-endian. Nothing has the sum zero.
func Sum(part []byte) uint64 {
	if len(part) == 0 {
		return 0
	}
	sum := sha256.Sum256(part)
	return binary.BigEndian.Uint64(sum[:])
}

// chain is the chain after the entry: the first eight bytes of SHA-256 over chain, epoch and sequence of the
// previous position, the tile, the epoch, the tick, the milliseconds of At, the kind, the SumParts of the payload and
// the Sum of the private part, each eight bytes, big-endian. The entry's own sequence is not part of it, so that a
// rebase which has to jump further is still the same entry.
func (e *Entry) chain() Chain {
	hidden := e.Hidden
	if len(e.Private) > 0 {
		hidden = Sum(e.Private)
	}
	var head [80]byte
	for i, n := range [...]uint64{uint64(e.Prev.Chain), uint64(e.Prev.Epoch), uint64(e.Prev.Seq), uint64(e.Tile),
		uint64(e.Epoch), uint64(e.Tick), uint64(Millis(e.At)), uint64(e.Kind), SumParts(e.Payload) + e.Rest, hidden} {
		binary.BigEndian.PutUint64(head[8*i:], n)
	}
	sum := sha256.Sum256(head[:])
	return Chain(binary.BigEndian.Uint64(sum[:]))
}

// Millis is a time as the wire has it: milliseconds since 1970, 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, t.UnixMilli())
}

// FromMillis reads a time of the wire: milliseconds since 1970, 0 for the zero time.
func FromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Verify reports whether the entry's chain follows from its content: nil, or a *CorruptError.
func (e *Entry) Verify() error {
	if got := e.chain(); got != e.Chain {
		return &CorruptError{Tile: e.Tile, What: "stream entry", At: e.Position,
			Detail: fmt.Sprintf("chain is %s, its content gives %s", e.Chain, got)}
	}
	return nil
}

// Watched is the entry as watchers of some areas are sent it: without its private part and the parts of other areas, of
// which the sums remain, so that the chain can still be verified.
func (e *Entry) Watched(areas AreaSet) Entry {
	w := *e
	w.Frame = nil
	if len(w.Private) > 0 {
		w.Private, w.Hidden = nil, Sum(w.Private)
	}
	var rest uint64
	w.Payload, rest = SelectParts(w.Payload, areas)
	w.Rest += rest
	return w
}

// seal computes the chain and encodes the entry, which from then on shares the frame's memory.
func (e *Entry) seal() {
	e.Chain = e.chain()
	e.At = FromMillis(Millis(e.At))
	f := make([]byte, 0, frameHead+len(e.Payload)+len(e.Private))
	f = append(f, FrameVersion, byte(e.Kind))
	f = binary.BigEndian.AppendUint64(f, uint64(e.Tile))
	f = binary.BigEndian.AppendUint64(f, uint64(e.Chain))
	f = binary.BigEndian.AppendUint64(f, uint64(e.Prev.Chain))
	for _, n := range [...]uint64{uint64(e.Epoch), uint64(e.Seq), uint64(e.Prev.Epoch), uint64(e.Prev.Seq),
		uint64(e.Tick),
		uint64(Millis(e.At)), uint64(len(e.Payload))} {
		f = binary.AppendUvarint(f, n)
	}
	head := len(f)
	f = append(append(f, e.Payload...), e.Private...)
	split := head + len(e.Payload)
	e.Frame, e.Payload, e.Private = f, f[head:split:split], f[split:]
}

// NewEntry encodes an entry made by hand, computing its chain. Owners get theirs from Commit.Entry and
// Rebase.Entry.
func NewEntry(e Entry) Entry {
	e.seal()
	return e
}

// DecodeEntry reads a frame, whose memory the entry shares. A *FormatError says what is wrong. It does not
// verify the chain: see Entry.Verify.
func DecodeEntry(frame []byte) (Entry, error) {
	bad := func(format string, args ...any) (Entry, error) {
		return Entry{}, &FormatError{What: "entry", Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(frame) < 26:
		return bad("cut short")
	case frame[0] != FrameVersion:
		return bad("version %d, this reader knows %d", frame[0], FrameVersion)
	case len(frame) > MaxFrame:
		return bad("%d bytes, at most %d", len(frame), MaxFrame)
	}
	e := Entry{Kind: Kind(frame[1]), Tile: TileID(binary.BigEndian.Uint64(frame[2:])), Frame: frame}
	e.Chain, e.Prev.Chain = Chain(binary.BigEndian.Uint64(frame[10:])), Chain(binary.BigEndian.Uint64(frame[18:]))
	n, rest, wrong := readNumbers(frame[26:])
	if wrong != "" {
		return bad("%s", wrong)
	}
	e.Epoch, e.Seq = Epoch(n[0]), Seq(n[1])
	e.Prev.Epoch, e.Prev.Seq = Epoch(n[2]), Seq(n[3])
	e.Tick, e.At = Tick(n[4]), FromMillis(int64(n[5]))
	if wrong := e.contradiction(); wrong != "" {
		return bad("%s", wrong)
	}
	if n[6] > uint64(min(len(rest), math.MaxInt32)) {
		return bad("cut short")
	}
	split := int(n[6])
	e.Payload, e.Private = rest[:split:split], rest[split:]
	return e, nil
}

// readNumbers reads the numbers of a frame and returns what comes after them, or what is wrong with them.
func readNumbers(frame []byte) (n [7]uint64, rest []byte, wrong string) {
	for i := range n {
		v, width := binary.Uvarint(frame)
		if width <= 0 || width > 1 && frame[width-1] == 0 {
			return n, nil, "a number is cut short, oversized or not minimally encoded"
		}
		if v > MaxNumber {
			return n, nil, fmt.Sprintf("number %d is over 2^53-1", v)
		}
		n[i], frame = v, frame[width:]
	}
	return n, frame, ""
}

// contradiction says what in an entry's fields cannot be together, if anything.
func (e *Entry) contradiction() string {
	switch {
	case e.Kind < KindBatch || e.Kind > KindRebase:
		return fmt.Sprintf("%s, which this reader does not know", e.Kind)
	case e.Tile == 0 || e.Epoch == 0 || e.Seq == 0:
		return "tile, epoch and sequence must not be zero"
	case e.Kind == KindRebase && !e.Prev.IsZero():
		return fmt.Sprintf("a rebase that follows %s", e.Prev)
	case e.Kind != KindRebase && e.Seq != e.Prev.Seq+1:
		return fmt.Sprintf("sequence %d after %d", e.Seq, e.Prev.Seq)
	case e.Prev.Epoch > e.Epoch:
		return fmt.Sprintf("epoch %d after %d", e.Epoch, e.Prev.Epoch)
	}
	return ""
}

// FormatError is encoded bytes that cannot be read: damaged, cut short, or of a version this reader does
// not know.
type FormatError struct {
	What   string // "entry", "batch", "snapshot", …
	Detail string
}

func (e *FormatError) Error() string { return "malformed " + e.What + ": " + e.Detail }
