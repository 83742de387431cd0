package shard_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/shard"
)

func TestRangesOfEverything(t *testing.T) {
	var r shard.Ranges
	require.Equal(t, 1, r.Len())
	require.Zero(t, r.Of(1))
	require.Zero(t, r.Of(math.MaxUint64))
	low, high := r.Bounds(0)
	require.Zero(t, low)
	require.EqualValues(t, uint64(math.MaxUint64), high)
}

// TestRangesAreAPartition: every tile is in the bounds of its shard and of no other.
func TestRangesAreAPartition(t *testing.T) {
	for range 50 {
		var tiles []fence.TileID
		for range 1 + rand.IntN(300) {
			tiles = append(tiles, fence.TileID(rand.Uint64()|1))
		}
		n := 1 + rand.IntN(min(len(tiles), 64))
		r, err := shard.Cut(tiles, n)
		require.NoError(t, err)
		require.Equal(t, n, r.Len())
		counts := make([]int, n)
		for _, tile := range tiles {
			counts[r.Of(tile)]++
		}
		for s, c := range counts {
			require.GreaterOrEqual(t, c, len(tiles)/n-1, "equally many")
			require.LessOrEqual(t, c, len(tiles)/n+1)
			low, high := r.Bounds(s)
			require.Equal(t, s, r.Of(low))
			require.Equal(t, s, r.Of(high))
			if s > 0 {
				require.Equal(t, s-1, r.Of(low-1))
			}
			if s < n-1 {
				require.Equal(t, s+1, r.Of(high+1))
			}
		}
	}
}

func TestRangesDigest(t *testing.T) {
	tiles := []fence.TileID{1, 2, 3, 4, 5, 6, 7, 8}
	a, err := shard.Cut(tiles, 4)
	require.NoError(t, err)
	b, err := shard.Cut([]fence.TileID{8, 7, 6, 5, 4, 3, 2, 1, 1, 8}, 4)
	require.NoError(t, err)
	require.Equal(t, a.Digest(), b.Digest(), "neither order nor repetition matters")
	same, err := shard.NewRanges(3, 5, 7)
	require.NoError(t, err)
	require.Equal(t, a.Digest(), same.Digest())
	require.Equal(t, "e3b0c44298fc1c14", shard.Ranges{}.Digest(), "SHA-256 of nothing")
	other, err := shard.NewRanges(3, 5, 8)
	require.NoError(t, err)
	require.NotEqual(t, a.Digest(), other.Digest())
}

func TestRangesArguments(t *testing.T) {
	many := make([]fence.TileID, shard.MaxShards)
	for i := range many {
		many[i] = fence.TileID(i + 1)
	}
	for _, cuts := range [][]fence.TileID{{0}, {2, 1}, {1, 1}, many} {
		_, err := shard.NewRanges(cuts...)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	r, err := shard.NewRanges(many[1:]...)
	require.NoError(t, err)
	require.Equal(t, shard.MaxShards, r.Len())
	for _, n := range []int{0, -1, 3, shard.MaxShards + 1} {
		_, err := shard.Cut([]fence.TileID{5, 5, 6}, n)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	_, err = shard.Cut([]fence.TileID{0, 1}, 2)
	require.NoError(t, err)
	require.Panics(t, func() { r.Bounds(shard.MaxShards) })
	require.Panics(t, func() { r.Bounds(-1) })
}
