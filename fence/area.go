package fence

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
	"slices"
)

// Area is a part of a tile: what watchers may choose to see. The game divides its tile as it likes, and numbers the
// parts. Every event belongs to one area, and the state of an area follows from the events of that area alone.
//
// Area 0 is the tile as a whole: every watcher sees it. A game without areas has nothing else.
type Area uint8

// AreaSet is a set of areas. The zero value is every area. No set is empty: what could be says so.
type AreaSet [4]uint64

var everyArea = AreaSet{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}

// Areas returns what a watcher of some areas sees: those, and area 0. Without arguments it is every area.
func Areas(areas ...Area) AreaSet {
	if len(areas) == 0 {
		return AreaSet{}
	}
	s := AreaSet{1}
	for _, a := range areas {
		s[a/64] |= 1 << (a % 64)
	}
	if s == everyArea {
		return AreaSet{}
	}
	return s
}

// All reports whether the set is every area.
func (s AreaSet) All() bool { return s == AreaSet{} }

// Has reports whether the set has an area.
func (s AreaSet) Has(a Area) bool { return s.All() || s[a/64]>>(a%64)&1 == 1 }

// List is the areas of the set, ascending; nil for every area.
func (s AreaSet) List() []Area {
	var list []Area
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			list = append(list, Area(64*i+bits.TrailingZeros64(word)))
		}
	}
	return list
}

// And is the areas that are in both sets.
func (s AreaSet) And(other AreaSet) AreaSet {
	if s.All() {
		return other
	}
	if other.All() {
		return s
	}
	for i := range s {
		s[i] &= other[i]
	}
	return s
}

// Or is the areas that are in one of the sets at least.
func (s AreaSet) Or(other AreaSet) AreaSet {
	if s.All() || other.All() {
		return AreaSet{}
	}
	for i := range s {
		s[i] |= other[i]
	}
	if s == everyArea {
		return AreaSet{}
	}
	return s
}

// Without is the areas of the set that are not in the other; some is false if there are none.
func (s AreaSet) Without(other AreaSet) (rest AreaSet, some bool) {
	if other.All() {
		return rest, false
	}
	if s.All() {
		s = everyArea
	}
	for i := range s {
		rest[i] = s[i] &^ other[i]
	}
	return rest, rest != AreaSet{}
}

// Part is what belongs to one area, in a list of parts: the payload of an entry, or the snapshot of a divided game.
// The list is ascending by area, without empty parts. A part is encoded as
//
//	area     1 byte
//	length   varint, unsigned LEB128 in its shortest form
//	content  of that length
type Part struct {
	Area    Area
	Content []byte
	Whole   []byte // the part as it is encoded: area, length and content
}

// AppendPart appends a part to a list; an empty one is left out. Areas must be appended in ascending order.
func AppendPart(dst []byte, area Area, content []byte) []byte {
	if len(content) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(append(dst, byte(area)), uint64(len(content)))
	return append(dst, content...)
}

// Parts takes a list apart; parts alias it. Where the list is not one, what is left of it comes as one last part with
// nil Content, which belongs to no area: see CheckParts.
func Parts(list []byte) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		for last := -1; len(list) > 0; {
			p := firstPart(list, last)
			if !yield(p) {
				return
			}
			last, list = int(p.Area), list[len(p.Whole):]
		}
	}
}

// firstPart is the first part of what is left of a list, after the area last.
func firstPart(list []byte, last int) Part {
	area := int(list[0])
	n, width := binary.Uvarint(list[1:])
	head := 1 + width
	if area <= last || width <= 0 || width > 1 && list[width] == 0 || n == 0 || n > uint64(len(list)-head) {
		return Part{Whole: list}
	}
	end := head + int(n)
	return Part{Area: Area(area), Content: list[head:end:end], Whole: list[:end:end]}
}

// CheckParts reports whether bytes are a list of parts: nil, or a *FormatError. Nothing is an empty list.
func CheckParts(list []byte) error {
	for p := range Parts(list) {
		if p.Content == nil {
			return &FormatError{What: "parts", Detail: "a part is cut short, empty, or not after the area before it"}
		}
	}
	return nil
}

// SelectParts returns the parts of a list that a watcher of some areas sees, as a list, and the SumParts of those left
// out. If none is, it is the list itself.
func SelectParts(list []byte, areas AreaSet) (selected []byte, rest uint64) {
	if areas.All() {
		return list, 0
	}
	size := seenOf(list, areas)
	if size == len(list) {
		return list, 0
	}
	selected = slices.Grow(selected, size)
	for p := range Parts(list) {
		if areas.Has(p.Area) && p.Content != nil {
			selected = append(selected, p.Whole...)
		} else {
			rest += Sum(p.Whole)
		}
	}
	return selected, rest
}

// seenOf is how many bytes of a list a watcher of some areas sees.
func seenOf(list []byte, areas AreaSet) (bytes int) {
	for p := range Parts(list) {
		if areas.Has(p.Area) && p.Content != nil {
			bytes += len(p.Whole)
		}
	}
	return bytes
}

// SumParts is the digest of a list that an entry's chain covers: the Sums of its parts, added modulo 2^64. A reader
// that was sent some of the parts, and the sum of the others, can therefore check the chain of an entry. Bytes at the
// end that are no part count as one.
func SumParts(list []byte) uint64 {
	var sum uint64
	for p := range Parts(list) {
		sum += Sum(p.Whole)
	}
	return sum
}
