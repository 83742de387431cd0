package checkpointtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfertest"
)

// voyage is a tile with a journal, whose border is crossed at each tick.
type voyage struct {
	*testing.T
	JournalHarness
	transfertest.Tile
	at fence.Position
}

// next is the entry of the next tick under an epoch, not yet in the journal.
func (v *voyage) next(epoch fence.Epoch) fence.Entry {
	v.Helper()
	payload, private := v.Next(v, fence.Position{Epoch: epoch, Seq: v.at.Seq + 1})
	e := fence.Entry{Tile: tile, Kind: fence.KindBatch, Position: fence.Position{Epoch: epoch, Seq: v.at.Seq + 1},
		Prev: v.at, Payload: payload, Private: private}
	e = fence.NewEntry(e)
	v.at = e.Position
	return e
}

// lays makes the tile's state the journal's base.
func (v *voyage) lays(epoch fence.Epoch, seq fence.Seq) {
	v.Helper()
	s := snapshot(epoch, seq, v.Blob())
	require.NoError(v, v.Journal.Base(v.Context(), tile, s))
	v.at = s.Position
}

// check requires that a new owner, elsewhere, knows all that the tile does of its border, from so many entries.
func (v *voyage) check(entries int) {
	v.Helper()
	s, found, err := v.Other.Get(v.Context(), tile)
	require.NoError(v, err)
	require.True(v, found)
	tail, err := v.Other.Tail(v.Context(), tile, s.Seq)
	require.NoError(v, err)
	require.Len(v, tail, entries)
	transfertest.RequireEqual(v, v.State, transfertest.Read(v, s.Blob, tail))
}

// testTransfers: what crosses a tile's border is in the private parts of its batches and snapshots. It comes back byte
// for byte: after a base, an append again, a seal, a rebase of the tile and a truncation. No more is replayed than what
// came after the last base.
func testTransfers(t *testing.T, h JournalHarness) {
	v := &voyage{T: t, JournalHarness: h}
	first := v.next(1) // the base has something of it
	v.lays(1, first.Seq)
	var last fence.Entry
	for n := range 9 {
		last = v.next(1)
		appended(t, h.Journal, tile, last)
		appended(t, h.Journal, tile, last)
		v.check(n + 1)
	}
	zombie := *v
	stale := zombie.next(1)
	require.NoError(t, h.Other.Seal(t.Context(), tile, 2))
	requireRefused(t, h.Journal.Append(t.Context(), tile, stale), fence.ErrStale, tile, 2, last.Position)
	v.check(9)
	for n := range 6 {
		appended(t, h.Other, tile, v.next(2))
		v.check(9 + n + 1)
	}
	requireRefused(t, h.Journal.Append(t.Context(), tile, stale), fence.ErrStale, tile, 2, v.at)

	v.lays(3, v.at.Seq+fence.RebaseJump)
	v.check(0)
	for n := range 5 {
		appended(t, h.Journal, tile, v.next(3))
		v.check(n + 1)
	}
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, v.at.Seq-5))
	v.check(5)
	head, err := h.Other.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, 5, head.Entries)
	require.Equal(t, checkpoint.JournalEnd{Sealed: 3, End: v.at}, head.JournalEnd)
}
