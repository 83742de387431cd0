package game

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tilefence/tilefence/fence"
)

// reader takes big-endian fields and varints off the front of p; after the first failure it returns zeros.
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

// number reads a varint in its shortest form, so that a value has one encoding.
func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.p)
	switch {
	case n <= 0:
		r.fail("cut short")
		return 0
	case n > 1 && r.p[n-1] == 0:
		r.fail("a number is not in its shortest form")
		return 0
	}
	r.p = r.p[n:]
	return v
}

// number32 reads a number of at most 32 bits.
func (r *reader) number32() uint32 {
	v := r.number()
	if v > math.MaxUint32 {
		r.fail("%d does not fit into 32 bits", v)
		return 0
	}
	return uint32(v)
}

// owner reads a length byte and a name of 1 to MaxOwner bytes.
func (r *reader) owner() string {
	n := int(r.u8())
	if r.err == nil && (n == 0 || n > MaxOwner) {
		r.fail("owner of %d bytes, want 1 to %d", n, MaxOwner)
	}
	return string(r.take(n))
}

// name reads what appendName writes.
func (r *reader) name() (hop uint32, home fence.TileID, owner string) {
	if hop = r.number32(); hop > 0 {
		home = fence.TileID(r.u64())
	}
	return hop, home, r.owner()
}

// owners reads a list of names, with its length before it.
func (r *reader) owners() (names []string) {
	for n := r.number(); n > 0 && r.err == nil; n-- {
		names = append(names, r.owner())
	}
	return names
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
