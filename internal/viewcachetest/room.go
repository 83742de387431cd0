package viewcachetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// Tests of what a store keeps, for how long, and what goes when there is no room.

func grace(s *scene) {
	s.put(s.tile, 1, at(1, 10, 1), at(1, 5, 1), 100)
	first := s.newest(s.tile)
	s.put(s.tile, 2, at(1, 20, 1), at(1, 5, 1), 100)
	second := s.newest(s.tile)
	s.put(s.tile, 3, at(1, 30, 1), at(1, 25, 1), 100)
	s.has(s.tile, first, true, true)
	s.has(s.tile, second, true, true)
	u, err := s.Usage(s.Context())
	require.NoError(s, err)
	require.Equal(s, 3, u.Old, "two tails and a base")
	time.Sleep(1100 * time.Millisecond)
	s.put(s.tile, 4, at(1, 31, 1), at(1, 25, 1), 100) // the next call reclaims
	s.has(s.tile, first, false, false)
	s.has(s.tile, second, false, false)
	s.has(s.tile, s.newest(s.tile), true, true)
	u, err = s.Usage(s.Context())
	require.NoError(s, err)
	require.Equal(s, 1, u.Old)
	require.Zero(s, u.Evicted, "there was room")
	require.Equal(s, counted(value(at(1, 30, 1), 100), value(at(1, 31, 1), 100), value(at(1, 25, 1), 100)), u.Bytes)
}

// counted is what values count.
func counted(values ...[]byte) (n int64) {
	for _, v := range values {
		n += int64(len(v) + viewstore.ValueCost)
	}
	return n
}

// groupMates are tiles of one group.
func groupMates(n int) (tiles []fence.TileID) {
	for t := fence.TileID(1); len(tiles) < n; t++ {
		if viewstore.GroupOf(t) == viewstore.GroupOf(1) {
			tiles = append(tiles, t)
		}
	}
	return tiles
}

func budget(s *scene) {
	const share, size = 1 << 20, 100_000
	tiles := groupMates(40)
	for i, t := range tiles {
		require.Equal(s, viewstore.Stored, s.put(t, 1, at(1, 2, 3), fence.Position{}, size))
		if i > 0 {
			s.newest(tiles[0]) // it is used all the time
		}
		u, err := s.Usage(s.Context())
		require.NoError(s, err)
		require.LessOrEqual(s, u.Bytes, int64(share))
	}
	s.has(tiles[0], s.newest(tiles[0]), false, true)
	for _, t := range tiles[1:20] {
		_, ok, err := s.Find(s.Context(), t)
		require.NoError(s, err)
		require.False(s, ok, "it was not used for the longest time")
	}
	for _, t := range tiles[32:] {
		s.has(t, s.newest(t), false, true)
	}
	u, err := s.Usage(s.Context())
	require.NoError(s, err)
	require.Equal(s, 30, u.Evicted)
	require.Equal(s, 10, u.Tiles)
	require.Equal(s, viewstore.TooLarge, s.put(tiles[0], 1, at(1, 3, 3), fence.Position{}, share/4))
	s.has(tiles[0], s.newest(tiles[0]), false, true)
}

// small: a version has room as long as it takes a quarter of its group's share at most, however many small ones are to
// go for it.
func small(s *scene) {
	const share, size = 1 << 20, 500
	tiles := groupMates(1200)
	last := tiles[len(tiles)-1]
	for _, t := range tiles[:len(tiles)-1] {
		require.Equal(s, viewstore.Stored, s.put(t, 1, at(1, 1, 1), fence.Position{}, size))
	}
	require.Equal(s, viewstore.Stored, s.put(last, 1, at(1, 1, 1), fence.Position{}, share/5))
	u, err := s.Usage(s.Context())
	require.NoError(s, err)
	require.LessOrEqual(s, u.Bytes, int64(share))
}

func oldFirst(s *scene) {
	const size = 100_000
	tiles := groupMates(3)
	for i := range 3 {
		require.Equal(s, viewstore.Stored, s.put(tiles[i], 1, at(1, 1, 1), fence.Position{}, size))
	}
	for seq := range uint64(30) { // one tile has many versions within the grace
		require.Equal(s, viewstore.Stored, s.put(tiles[0], 1, at(1, 2+seq, 1), fence.Position{}, size))
	}
	for i := range 3 {
		s.has(tiles[i], s.newest(tiles[i]), false, true)
	}
}

// refused: a version that has no room names values of superseded ones, which must still go when their grace ends.
func refused(s *scene) {
	const share, size = 1 << 20, 1000
	first, second := at(1, 1, 1), at(1, 2, 1)
	s.put(s.tile, 1, at(1, 3, 1), first, size)
	s.put(s.tile, 2, at(1, 4, 1), second, size)
	old := func() int {
		u, err := s.Usage(s.Context())
		require.NoError(s, err)
		return u.Old
	}
	require.Equal(s, 2, old(), "a tail and a base")
	require.Equal(s, viewstore.TooLarge, s.put(s.tile, 3, at(2, 1, 1), first, share/4))
	require.Equal(s, 2, old(), "too large, whatever is evicted")

	for seq := range uint64(900) { // so many old values that one call may not evict enough of them
		s.put(s.tile, 3, at(2, 2+seq, 1), second, size)
	}
	verdict := s.put(s.tile, 4, at(3, 1, 1), first, 120_000)
	require.Contains(s, []viewstore.Verdict{viewstore.Stored, viewstore.TooLarge}, verdict)
	last := at(4, 1, 1)
	require.Equal(s, viewstore.Stored, s.put(s.tile, 5, last, last, size))
	waittest.Until(s, func() bool { // each call reclaims some of what has outlived its grace
		require.Equal(s, viewstore.Confirmed, s.put(s.tile, 5, last, last, size))
		u, err := s.Usage(s.Context())
		require.NoError(s, err)
		return u.Bytes == counted(value(last, size), value(last, size))
	}, 20*time.Second, 20*time.Millisecond, "a value stays for ever")
}
