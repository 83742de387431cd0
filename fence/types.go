package fence

import (
	"crypto/sha1" //nolint:gosec // a checksum against damage, not against an attacker
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxNumber is the largest epoch, sequence or tick Tilefence accepts: 2^53 - 1. The Redis functions
// compare numbers as IEEE 754 doubles, which are exact up to there.
const MaxNumber = 1<<53 - 1

// What is read back from a store is believed up to these, 2^44 ticks and 2^52 batches: a tile that ticks a thousand
// times a second comes there in 557 years, or much later. What is above was not written by an owner, and would leave an
// owner no room to go on.
const (
	FarTick Tick = 1 << 44
	FarSeq  Seq  = 1 << 52
)

// EpochLeap is how far above an epoch that is known another can be: processes mint one at a time, and an authority or a
// store that was restored to an older state lacks few.
const EpochLeap Epoch = 1 << 20

// FarAbove reports whether e is more than EpochLeap above a known epoch: then one of the two was never minted.
func (e Epoch) FarAbove(known Epoch) bool { return e > known && e-known > EpochLeap }

// Plausible reports whether an authority can have minted e, when it was known to have minted another. The tile's
// record may have been retired since, and have begun above that: then e is at most MaxRetired.
func (e Epoch) Plausible(known Epoch) bool {
	return e <= MaxRetired || e <= MaxNumber && !e.FarAbove(known)
}

// TileID names a tile: an H3 index. This package treats it as an opaque non-zero number; package tile
// knows its geometry. The text form is the H3 convention, lower-case hexadecimal without leading zeros.
type TileID uint64

// String returns the index in lower-case hexadecimal, as it appears in keys and logs.
func (t TileID) String() string { return strconv.FormatUint(uint64(t), 16) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (t TileID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; it accepts what ParseTileID accepts.
func (t *TileID) UnmarshalText(b []byte) error {
	v, err := ParseTileID(string(b))
	if err != nil {
		return err
	}
	*t = v
	return nil
}

// ParseTileID reads the form String writes. Any other form, upper case and leading zeros included, is
// an *ArgumentError: two spellings of one tile would be two keys.
func ParseTileID(s string) (TileID, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || v == 0 || TileID(v).String() != s {
		return 0, &ArgumentError{Field: "tile", Value: s,
			Want: "an H3 index in lower-case hexadecimal, such as 85283473fffffff"}
	}
	return TileID(v), nil
}

// Epoch is a tile's fencing token. The authority mints it, each mint strictly higher than every earlier
// one of the same tile; zero means "none". Epochs of different tiles are unrelated.
type Epoch uint64

// Seq numbers the batches of a tile from 1. It is tile-lifetime monotonic: a takeover continues it, a
// rebase jumps it ahead, nothing resets it. Zero is the position before the first batch.
type Seq uint64

// Tick counts a tile's game ticks. Ticks without events commit no batch, so Tick and Seq differ.
type Tick uint64

// Chain is a running hash over a tile's batches: equal chains at equal sequences mean equal histories.
// It is the first 64 bits of SHA-256 (see Entry.Verify); zero is the chain before the first batch.
type Chain uint64

// String returns the chain as 16 lower-case hexadecimal digits, its form on the wire.
func (c Chain) String() string {
	var b [16]byte
	return string(c.append(b[:0]))
}

// LogValue implements slog.LogValuer with the form of String.
func (c Chain) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Chain) append(to []byte) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(c))
	return hex.AppendEncode(to, b[:])
}

// ParseChain reads the form String writes.
func ParseChain(s string) (Chain, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || Chain(v).String() != s {
		return 0, &ArgumentError{Field: "chain", Value: s, Want: "16 lower-case hexadecimal digits"}
	}
	return Chain(v), nil
}

// Position is a place in one tile's history. Epoch and sequence alone do not name a history: an owner
// can abandon a batch that a paused master keeps and write another under the same numbers. With the
// chain, "this follows that" is one comparison. The zero Position is the beginning.
type Position struct {
	Epoch Epoch
	Seq   Seq
	Chain Chain
}

// IsZero reports whether p is the beginning of a tile's history.
func (p Position) IsZero() bool { return p == Position{} }

// String returns epoch/seq/chain, the form stored in stream entries: "3/120/9f86d081884c7d65".
func (p Position) String() string {
	var room [64]byte
	b := strconv.AppendUint(room[:0], uint64(p.Epoch), 10)
	b = append(b, '/')
	b = strconv.AppendUint(b, uint64(p.Seq), 10)
	b = append(b, '/')
	return string(p.Chain.append(b))
}

// LogValue implements slog.LogValuer with the form of String.
func (p Position) LogValue() slog.Value { return slog.StringValue(p.String()) }

// ParsePosition reads the form String writes.
func ParsePosition(s string) (Position, error) {
	bad := &ArgumentError{Field: "position", Value: s, Want: "epoch/sequence/chain"}
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return Position{}, bad
	}
	e, err1 := ParseNumber(parts[0])
	q, err2 := ParseNumber(parts[1])
	c, err3 := ParseChain(parts[2])
	if err1 != nil || err2 != nil || err3 != nil {
		return Position{}, bad
	}
	return Position{Epoch: Epoch(e), Seq: Seq(q), Chain: c}, nil
}

// ParseNumber reads a decimal number from 0 to MaxNumber without sign, spaces or leading zeros.
func ParseNumber(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v > MaxNumber || (len(s) > 1 && s[0] == '0') {
		return 0, &ArgumentError{Field: "number", Value: s, Want: "a decimal number from 0 to 2^53-1"}
	}
	return v, nil
}

// Owner is what the coordination store says of a tile's owner: a fast copy of the authority's answer,
// refreshed by every tick, gone when the tile has been silent for its time to live.
type Owner struct {
	Tile     TileID
	Epoch    Epoch    // zero: no owner hash
	Contact  string   // address at which the owner takes intents
	Position Position // last committed batch
	Tick     Tick     // last tick that committed or refreshed
}

// Present reports whether an owner hash existed when this was read. Absent is not epoch zero: it says
// nothing about who owns the tile; only the authority does.
func (o Owner) Present() bool { return o.Epoch > 0 }

// Snapshot is a tile's whole state at a position.
type Snapshot struct {
	Position
	Tick    Tick
	Contact string    // owner that wrote it
	Sum     string    // checksum of Blob, see Checksum
	Taken   time.Time // by the store's clock, in milliseconds
	Blob    []byte
}

// Verify compares the blob with its checksum: nil, or a *CorruptError.
func (s *Snapshot) Verify(tile TileID) error {
	if got := Checksum(s.Blob); got != s.Sum {
		return &CorruptError{Tile: tile, What: "snapshot", At: s.Position,
			Detail: fmt.Sprintf("checksum is %s, the blob's is %s", s.Sum, got)}
	}
	return nil
}

// Checksum is a snapshot's checksum: SHA-1 in lower-case hexadecimal, the digest a Redis function can
// compute by itself over the bytes it received.
func Checksum(blob []byte) string {
	sum := sha1.Sum(blob) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// IsName reports whether s can name something: an actor, an asset, an action, a contact. It is 1 to most bytes of UTF-8
// that people can read in a log or on a screen and tell from any other name: without control characters, those that
// turn the direction of writing or are not seen, and any white space but the space of ASCII. The replacement character,
// which encoders write for bytes that they cannot carry, is none either: two different names would become one.
func IsName(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for _, r := range s { // bytes that are not UTF-8 are read as the replacement character
		if r == utf8.RuneError || r != ' ' && unicode.In(r, unseen...) || r == blankBraille {
			return false
		}
	}
	return true
}

// AsName makes a text fit to be shown where a name is (IsName): it is cut to so many bytes, and "?" takes the place of
// each character that a name may not have. An empty text stays empty.
func AsName(s string, most int) string {
	if s == "" || IsName(s, most) {
		return s
	}
	b := make([]byte, 0, most)
	for _, r := range s {
		if r == utf8.RuneError || !IsName(string(r), utf8.UTFMax) {
			r = '?'
		}
		if len(b)+utf8.RuneLen(r) > most {
			break
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

// unseen are the characters that show nothing: control, format (those of direction among them), private and surrogate
// code points; separators; and letters and marks that are drawn as nothing.
var unseen = []*unicode.RangeTable{unicode.C, unicode.Z, unicode.Other_Default_Ignorable_Code_Point,
	unicode.Variation_Selector}

// blankBraille is a symbol without a dot.
const blankBraille = '\u2800'
