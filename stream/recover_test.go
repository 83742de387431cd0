package stream_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

// meddled is a log that is changed between one read and the next, and whose answers may be changed too.
type meddled struct {
	stream.Log
	afterSnapshot func()              // runs once after each snapshot was read
	chunk         func(*stream.Chunk) // may change what was read
}

func (m *meddled) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	s, found, err := m.Log.Snapshot(ctx, tile)
	if m.afterSnapshot != nil {
		m.afterSnapshot()
	}
	return s, found, err
}

func (m *meddled) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	chunks, err := m.Log.Read(ctx, cursors)
	if err == nil && m.chunk != nil {
		m.chunk(&chunks[0])
	}
	return chunks, err
}

const tile fence.TileID = 0x85283473fffffff

// owner commits to one tile.
type owner struct {
	*testing.T
	store *memfence.Store
	last  fence.Position
	epoch fence.Epoch
}

func newOwner(t *testing.T) (*owner, *meddled) {
	store := memfence.New()
	return &owner{T: t, store: store, epoch: 1}, &meddled{Log: memstream.New(store)}
}

func (o *owner) commit(n int) {
	o.Helper()
	for range n {
		r, err := o.store.Commit(o.Context(), fence.Commit{Tile: tile, Epoch: o.epoch, Contact: "a:1", Prev: o.last,
			Tick: fence.Tick(o.last.Seq + 1), Payload: []byte("x"), Install: o.last.IsZero()})
		require.NoError(o, err)
		o.last = r.Position
	}
}

func (o *owner) rebase() {
	o.Helper()
	o.epoch++
	r, err := o.store.Rebase(o.Context(), fence.Rebase{Tile: tile, Epoch: o.epoch, Contact: "a:1",
		Seq: o.last.Seq + 10})
	require.NoError(o, err)
	o.last = r.Position
}

// TestRecoverStartsAgain: a rebase, or a snapshot and a trim, between the two reads of a recovery.
func TestRecoverStartsAgain(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(*owner, stream.Log){
		"rebase": func(o *owner, _ stream.Log) { o.rebase() },
		"trim": func(o *owner, log stream.Log) {
			require.NoError(o, o.store.SaveSnapshot(o.Context(), fence.SnapshotWrite{Tile: tile, Position: o.last}))
			_, err := log.Trim(o.Context(), stream.TrimRequest{Tile: tile, Lease: 1 << 40})
			require.NoError(o, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, log := newOwner(t)
			o.commit(5)
			times := 2
			log.afterSnapshot = func() {
				if times--; times >= 0 {
					meddle(o, log.Log)
					o.commit(2)
				}
			}
			r, err := stream.Recover(t.Context(), log, tile)
			require.NoError(t, err)
			require.Equal(t, o.last, r.Position)
			require.True(t, r.HasSnapshot)
		})
	}
}

// TestRecoverGivesUp: a reader that meets another rebase each time gets an error, and does not loop for ever.
func TestRecoverGivesUp(t *testing.T) {
	t.Parallel()
	o, log := newOwner(t)
	o.commit(1)
	reads := 0
	log.afterSnapshot = func() { reads++; o.rebase() }
	r, err := stream.Recover(t.Context(), log, tile)
	require.ErrorIs(t, err, stream.ErrGap)
	var gap *stream.GapError
	require.ErrorAs(t, err, &gap)
	require.Equal(t, o.last, gap.Next.Position)
	require.Zero(t, r)
	require.Equal(t, 5, reads)
}

// TestRecoverRefusesDamage: damage is an error, never a shorter history.
func TestRecoverRefusesDamage(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("unreachable")
	for name, test := range map[string]struct {
		meddle func(*stream.Chunk)
		want   error
	}{
		"payload": {func(c *stream.Chunk) { c.Entries[2].Payload = []byte("y") }, fence.ErrCorrupt},
		"tick":    {func(c *stream.Chunk) { c.Entries[2].Tick++ }, fence.ErrCorrupt},
		"chain":   {func(c *stream.Chunk) { c.Entries[2].Chain++ }, fence.ErrCorrupt},
		"missing entry": {func(c *stream.Chunk) {
			c.Entries = append(c.Entries[:2:2], c.Entries[3:]...)
		}, stream.ErrGap},
		"repeated entry": {func(c *stream.Chunk) { c.Entries[3] = c.Entries[2] }, stream.ErrGap},
		"poison": {func(c *stream.Chunk) {
			c.Entries, c.Poison = c.Entries[:2], &stream.Poison{Seq: 3}
		}, fence.ErrCorrupt},
		"tile unreadable": {func(c *stream.Chunk) { *c = stream.Chunk{Err: unreachable} }, unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			o, log := newOwner(t)
			o.commit(5)
			log.chunk = test.meddle
			r, err := stream.Recover(t.Context(), log, tile)
			require.ErrorIs(t, err, test.want)
			require.Zero(t, r)
		})
	}
}
