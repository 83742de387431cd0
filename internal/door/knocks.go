package door

import (
	"hash/maphash"
	"math"
	"time"
)

// knocks counts handshakes by address, since a minute began, in a table whose size does not depend on how many
// addresses there are: a stranger with a wide block of them can neither fill nor clear it. Addresses share counters at
// random, of which each address has one in every row, and the lowest counts; so a count may be too high, though never
// too low. With a million handshakes from as many addresses in a minute it is too high by some ten.
type knocks struct {
	begun time.Time
	seeds [knockRows]maphash.Seed
	rows  [knockRows][knockColumns]uint32
}

const (
	knockWindow  = time.Minute
	knockRows    = 2
	knockColumns = 1 << 16
)

func newKnocks() *knocks {
	k := &knocks{}
	for i := range k.seeds {
		k.seeds[i] = maphash.MakeSeed()
	}
	return k
}

// count counts a handshake of an address and returns how many there were.
func (k *knocks) count(address string, now time.Time) int {
	if now.Sub(k.begun) >= knockWindow {
		k.begun, k.rows = now, [knockRows][knockColumns]uint32{}
	}
	var of [knockRows]*uint32
	least := uint32(math.MaxUint32)
	for i := range of {
		of[i] = &k.rows[i][maphash.String(k.seeds[i], address)%knockColumns]
		least = min(least, *of[i])
	}
	if least == math.MaxUint32 {
		return math.MaxInt
	}
	for _, n := range of {
		*n = max(*n, least+1)
	}
	return int(least) + 1
}
