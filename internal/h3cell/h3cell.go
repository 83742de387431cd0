// Package h3cell reads the number of an H3 cell. It asks no library, and so needs no cgo.
package h3cell

// pentagons are the base cells of H3 that have five neighbours, a bit for each.
var pentagons = func() (set [2]uint64) {
	for _, c := range []uint64{4, 14, 24, 38, 49, 58, 63, 72, 83, 97, 107, 117} {
		set[c/64] |= 1 << (c % 64)
	}
	return set
}()

// Resolution is that of a valid cell, 0 to 15.
func Resolution(cell uint64) int { return int(cell >> 52 & 15) }

// Valid reports whether a number is a cell of H3, of any resolution. Bits of a cell, from the highest: 1 zero, 4 mode
// (1), 3 zero, 4 resolution, 7 base cell (below 122), and 15 digits of 3 bits each, of which those beyond the
// resolution are 7 and all others less. Below a pentagon the first digit that is not 0 is not 1.
func Valid(cell uint64) bool {
	resolution, base := Resolution(cell), cell>>45&127
	if cell>>56 != 1<<3 || base >= 122 {
		return false
	}
	pentagon := pentagons[base/64]>>(base%64)&1 == 1
	for r := 1; r <= 15; r++ {
		digit := cell >> (3 * (15 - r)) & 7
		switch {
		case (digit == 7) != (r > resolution), pentagon && digit == 1:
			return false
		case digit != 0:
			pentagon = false
		}
	}
	return true
}
