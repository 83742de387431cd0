package gate

import (
	"hash/maphash"
	"math"
	"time"
)

// handshakes counts handshakes by address, since a minute began, in a table whose size does not depend on how many
// addresses there are: a stranger with a wide block of them can neither fill nor clear it. Addresses share counters at
// random, of which each address has one in every row, and the lowest counts; so a count may be too high, though never
// too low. With a million handshakes from as many addresses in a minute it is too high by some ten.
type handshakes struct {
	begun time.Time
	seeds [countRows]maphash.Seed
	rows  [countRows][countColumns]uint32
}

const (
	countWindow  = time.Minute
	countRows    = 2
	countColumns = 1 << 16
)

func newHandshakes() *handshakes {
	k := &handshakes{}
	for i := range k.seeds {
		k.seeds[i] = maphash.MakeSeed()
	}
	return k
}

// count counts a handshake of an address and returns how many there were.
func (k *handshakes) count(address string, now time.Time) int {
	if now.Sub(k.begun) >= countWindow {
		k.begun, k.rows = now, [countRows][countColumns]uint32{}
	}
	var of [countRows]*uint32
	least := uint32(math.MaxUint32)
	for i := range of {
		of[i] = &k.rows[i][maphash.String(k.seeds[i], address)%countColumns]
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
