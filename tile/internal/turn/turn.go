// Package turn spreads what thousands of tiles do at intervals, so that they do not do it all at once. A place is the
// same for a tile in every process.
package turn

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// golden parts neighbouring tiles, which differ in few bits: Fibonacci hashing.
const golden = 0x9e3779b97f4a7c15

// Phase spreads the ticks of many tiles over the interval, so that tiles started together do not commit,
// deliver and fold all at once.
func Phase(id fence.TileID, interval time.Duration) time.Duration {
	place, _ := bits.Mul64(uint64(id)*golden, uint64(interval))
	return time.Duration(place)
}

// Purpose is what tiles take turns at besides their ticks. The turns of one purpose say nothing about those of
// another, nor about the phase.
type Purpose uint64

// The purposes.
const (
	Confirm  Purpose = 1
	Snapshot Purpose = 2
	Retry    Purpose = 3
	Look     Purpose = 4 // at the authority
)

// Place gives a tile its place among n, for a purpose: the same each time, and as many tiles to each place.
func Place(id fence.TileID, why Purpose, n uint64) uint64 {
	// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
	x := uint64(id) + uint64(why)*golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	place, _ := bits.Mul64(x^x>>31, n)
	return place
}

// Count counts the turns that a tile has had at a purpose by a tick: one in every so many ticks.
func Count(id fence.TileID, why Purpose, tick fence.Tick, every int) uint64 {
	n := uint64(every)
	return (uint64(tick) + Place(id, why, n)) / n
}

// Is reports whether a tick is a turn.
func Is(id fence.TileID, why Purpose, tick fence.Tick, every int) bool {
	n := uint64(every)
	return (uint64(tick)+Place(id, why, n))%n == 0
}

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
