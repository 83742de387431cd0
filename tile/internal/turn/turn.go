// Package turn spreads what thousands of tiles do at intervals, so that they do not do it all at once. A place is the
// same for a tile in every process.
package turn

import (
	"math/bits"
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
