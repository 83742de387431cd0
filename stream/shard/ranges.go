package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"sort"

	"github.com/tilefence/tilefence/fence"
)

// MaxShards is the most shards a group may have. What a heartbeat costs the store grows with them.
const MaxShards = 256

// Ranges divides all tile IDs into shards, each a range. The zero Ranges is one shard of everything. It is
// immutable and safe for concurrent use.
type Ranges struct {
	cuts []fence.TileID // ascending; shard i begins at cuts[i-1] and ends before cuts[i]
}

// NewRanges cuts before each of the given tiles, which makes one shard more than there are cuts. A
// *fence.ArgumentError if they do not ascend, if one is zero, or if there are MaxShards of them.
func NewRanges(cuts ...fence.TileID) (Ranges, error) {
	if len(cuts) >= MaxShards {
		return Ranges{}, &fence.ArgumentError{Field: "cuts", Value: len(cuts), Want: "fewer than MaxShards"}
	}
	last := fence.TileID(0)
	for _, c := range cuts {
		if c <= last {
			return Ranges{}, &fence.ArgumentError{Field: "cuts", Value: c, Want: "tiles in ascending order, none twice, none zero"}
		}
		last = c
	}
	return Ranges{cuts: slices.Clone(cuts)}, nil
}

// Cut divides into n shards with about equally many of the given tiles, in any order, each. Two processes
// that are to share tiles must cut at the same places, so tiles should be what both know: the plan of the
// world, not what happens to be running. Several times as many shards as processes share evenly whoever
// comes and goes. A *fence.ArgumentError if n is not 1 to MaxShards, or if there are fewer different tiles.
func Cut(tiles []fence.TileID, n int) (Ranges, error) {
	sorted := slices.Clone(tiles)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	if n < 1 || n > MaxShards {
		return Ranges{}, &fence.ArgumentError{Field: "n", Value: n, Want: "1 to MaxShards"}
	}
	if len(sorted) < n {
		return Ranges{}, &fence.ArgumentError{Field: "tiles", Value: len(sorted), Want: "at least one for each shard"}
	}
	cuts := make([]fence.TileID, 0, n-1)
	for i := 1; i < n; i++ {
		cuts = append(cuts, sorted[i*len(sorted)/n])
	}
	return NewRanges(cuts...)
}

// Len is the number of shards, at least 1.
func (r Ranges) Len() int { return len(r.cuts) + 1 }

// Of is the shard of a tile, 0 to Len()-1.
func (r Ranges) Of(tile fence.TileID) int {
	return sort.Search(len(r.cuts), func(i int) bool { return r.cuts[i] > tile })
}

// Bounds returns the first and the last tile ID of a shard. It panics if the shard does not exist.
func (r Ranges) Bounds(shard int) (low, high fence.TileID) {
	if shard < 0 || shard > len(r.cuts) {
		panic("shard: no such shard")
	}
	high = math.MaxUint64
	if shard > 0 {
		low = r.cuts[shard-1]
	}
	if shard < len(r.cuts) {
		high = r.cuts[shard] - 1
	}
	return low, high
}

// Digest identifies the cuts: the first 8 bytes, in hexadecimal, of SHA-256 over them, 8 bytes each,
// big-endian.
func (r Ranges) Digest() string {
	all := make([]byte, 0, 8*len(r.cuts))
	for _, c := range r.cuts {
		all = binary.BigEndian.AppendUint64(all, uint64(c))
	}
	sum := sha256.Sum256(all)
	return hex.EncodeToString(sum[:8])
}
