package checkpointtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

func testEmpty(t *testing.T, h Harness) {
	s, found, err := h.Store.Get(t.Context(), tile)
	require.NoError(t, err)
	assert.False(t, found)
	assert.Zero(t, s)
	assert.Empty(t, list(t, h.Store))
}

func testRoundTrip(t *testing.T, h Harness) {
	first, second := text(3, 120), text(3, 180)
	put(t, h.Store, tile, first)
	holds(t, h.Store, tile, first)
	holds(t, h.Other, tile, first)
	put(t, h.Other, tile, second)
	holds(t, h.Store, tile, second)

	bare := snapshot(3, 181, nil)
	bare.Contact, bare.Tick, bare.Taken, bare.Chain = "", 0, time.Time{}, 0
	put(t, h.Store, tile, bare)
	holds(t, h.Store, tile, bare)
}

// testSizes goes around the limits where back ends may change how they store a blob, in both directions.
func testSizes(t *testing.T, h Harness) {
	const item = 400 << 10 // DynamoDB's limit of one item
	sizes := []int{0, 1, 1000, 384<<10 - 1, 384 << 10, 384<<10 + 1, item, item + 1, 1 << 20, 2*384<<10 + 1, 1,
		fence.MaxSnapshot, 10}
	for i, n := range sizes {
		s := snapshot(1, fence.Seq(i+1), noise(n))
		put(t, h.Store, tile, s)
		put(t, h.Store, tile, s) // the same again
		holds(t, h.Other, tile, s)
	}
}

// testNumbers sees that numbers are compared as numbers, up to the largest.
func testNumbers(t *testing.T, h Harness) {
	last := text(9, 9)
	put(t, h.Store, tile, last)
	for _, n := range []uint64{10, 100, 1 << 31, 1<<32 + 1, fence.MaxNumber - 1, fence.MaxNumber} {
		s := text(fence.Epoch(n), fence.Seq(n))
		s.Tick, s.Taken, s.Chain = fence.MaxNumber, fence.FromMillis(fence.MaxNumber), 1<<64-1
		put(t, h.Store, tile, s)
		holds(t, h.Store, tile, s)
		refused(t, h.Store, tile, last, s.Position, true)
		last = s
	}
}

// testOtherHistory presents something else at the very numbers that are stored.
func testOtherHistory(t *testing.T, h Harness) {
	s := text(5, 50)
	put(t, h.Store, tile, s)

	fork := s
	fork.Chain++
	refused(t, h.Other, tile, fork, s.Position, false)

	changed := snapshot(5, 50, []byte("another state"))
	refused(t, h.Other, tile, changed, s.Position, true)
	changed = snapshot(5, 50, noise(1<<20))
	refused(t, h.Other, tile, changed, s.Position, true)
	holds(t, h.Store, tile, s)
}

func testTiles(t *testing.T, h Harness) {
	tiles := []fence.TileID{1, 0x10, 0x100, tile, 1<<63 | 1, 1<<64 - 1}
	for i, id := range tiles {
		put(t, h.Store, id, text(7, fence.Seq(100-i)))
	}
	for i, id := range tiles {
		holds(t, h.Other, id, text(7, fence.Seq(100-i)))
	}
}

func testList(t *testing.T, h Harness) {
	var want []checkpoint.Head
	for i, n := range []int{0, 10, 1 << 20} {
		id := tile + fence.TileID(i)
		put(t, h.Store, id, text(1, 1))
		s := snapshot(2, fence.Seq(10+i), noise(n))
		put(t, h.Store, id, s)
		want = append(want, checkpoint.HeadOf(id, &s))
	}
	assert.Equal(t, want, list(t, h.Other))

	n := 0
	for _, err := range h.Store.List(t.Context()) {
		require.NoError(t, err)
		n++
		break
	}
	assert.Equal(t, 1, n, "stopping early")
}

// list returns the heads in the order of their tiles.
func list(t *testing.T, st checkpoint.Store) []checkpoint.Head {
	t.Helper()
	var heads []checkpoint.Head
	for head, err := range st.List(t.Context()) {
		require.NoError(t, err)
		heads = append(heads, head)
	}
	slices.SortFunc(heads, func(a, b checkpoint.Head) int { return cmp.Compare(a.Tile, b.Tile) })
	return heads
}

// testAliasing sees that neither side keeps the other's bytes.
func testAliasing(t *testing.T, h Harness) {
	blob := noise(100)
	s := snapshot(1, 1, slices.Clone(blob))
	put(t, h.Store, tile, s)
	s.Blob[0] ^= 1
	for range 2 {
		got, _, err := h.Store.Get(t.Context(), tile)
		require.NoError(t, err)
		require.Equal(t, blob, got.Blob)
		got.Blob[1] ^= 1
	}
}

// testArguments: what is malformed, the tests of checkpoint.ValidatePut say in full.
func testArguments(t *testing.T, h Harness) {
	large := text(1, 1)
	large.Blob = make([]byte, fence.MaxSnapshot+1)
	large.Sum = fence.Checksum(large.Blob)
	require.ErrorIs(t, h.Store.Put(t.Context(), tile, large), fence.ErrInvalidArgument)
	require.ErrorIs(t, h.Store.Put(t.Context(), 0, text(1, 1)), fence.ErrInvalidArgument)
	_, _, err := h.Store.Get(t.Context(), 0)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, found, err := h.Store.Get(t.Context(), tile)
	require.NoError(t, err)
	assert.False(t, found, "something was written")
}

func testCorrupt(t *testing.T, h Harness) {
	good := text(1, 1)
	put(t, h.Store, tile, good)
	bad := text(1, 2)
	bad.Blob[0] ^= 1
	err := h.Store.Put(t.Context(), tile, bad)
	require.ErrorIs(t, err, fence.ErrCorrupt)
	var corrupt *fence.CorruptError
	require.ErrorAs(t, err, &corrupt)
	assert.Equal(t, tile, corrupt.Tile)
	assert.Equal(t, bad.Position, corrupt.At)
	holds(t, h.Store, tile, good)
}

func testDamaged(t *testing.T, h Harness) {
	for i, n := range []int{100, 1 << 20} {
		id := tile + fence.TileID(i)
		s := snapshot(4, 40, noise(n))
		put(t, h.Store, id, s)
		h.Damage(t, id)
		_, found, err := h.Store.Get(t.Context(), id)
		require.ErrorIs(t, err, fence.ErrCorrupt)
		assert.False(t, found)
		var corrupt *fence.CorruptError
		require.ErrorAs(t, err, &corrupt)
		assert.Equal(t, id, corrupt.Tile)
		assert.Equal(t, s.Position, corrupt.At)

		// A later snapshot heals it.
		s = snapshot(4, 41, noise(n))
		put(t, h.Store, id, s)
		holds(t, h.Store, id, s)
	}
}

func testCancelled(t *testing.T, h Harness) {
	s := text(1, 1)
	put(t, h.Store, tile, s)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for i, n := range []int{10, 1 << 20} {
		err := h.Store.Put(ctx, tile, snapshot(1, fence.Seq(2+i), noise(n)))
		var store *fence.StoreError
		require.ErrorAs(t, err, &store)
		assert.Equal(t, tile, store.Tile)
		require.ErrorIs(t, err, fence.ErrNotApplied)
		require.ErrorIs(t, err, why)
	}
	_, _, err := h.Store.Get(ctx, tile)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	for _, err = range h.Store.List(ctx) {
	}
	require.ErrorIs(t, err, fence.ErrNotApplied, fmt.Sprint(err))
	holds(t, h.Store, tile, s)
}
