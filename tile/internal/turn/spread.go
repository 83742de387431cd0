package turn

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Spread keeps the ticks of one process apart: each tile is given the middle of the widest gap that those before it
// have left in the interval, so no gap is more than about twice another. Hashed phases leave some tiles to tick at
// once, and what they commit reaches its watchers at once, too. The zero value is ready.
type Spread struct {
	mu    sync.Mutex
	taken []uint64 // places in ascending order, as fractions of the interval in units of 2^-64
}

// Take gives a tile a place, and how long it is from now until the clock comes by there. free gives the place back.
func (s *Spread) Take(id fence.TileID, interval time.Duration) (wait time.Duration, free func()) {
	place := s.take(id)
	at, _ := bits.Mul64(place, uint64(interval))
	now := time.Duration(time.Now().UnixNano()) % interval
	return (time.Duration(at) - now + interval) % interval, func() { s.free(place) }
}

func (s *Spread) take(id fence.TileID) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) == 0 {
		s.taken = append(s.taken, uint64(id)*golden) // not the same in every process
		return s.taken[0]
	}
	// The gap before the first place goes around the end of the interval.
	last, after, widest := s.taken[len(s.taken)-1], uint64(0), uint64(0)
	for _, place := range s.taken {
		if gap := place - last - 1; gap >= widest { // one place alone leaves a gap of 2^64-1
			after, widest = last, gap
		}
		last = place
	}
	place := after + widest/2 + 1
	i, _ := slices.BinarySearch(s.taken, place)
	s.taken = slices.Insert(s.taken, i, place)
	return place
}

func (s *Spread) free(place uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := slices.BinarySearch(s.taken, place); found {
		s.taken = slices.Delete(s.taken, i, i+1)
	}
}
