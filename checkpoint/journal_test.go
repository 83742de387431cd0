package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
)

// watchedJournal sees that no journal is truncated past what its world's store holds, and can be made to fail.
type watchedJournal struct {
	checkpoint.Backend
	w *world

	mu       sync.Mutex
	calls    int
	truncate func(ctx context.Context, tile fence.TileID) error
}

func (j *watchedJournal) set(truncate func(ctx context.Context, tile fence.TileID) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.truncate = truncate
}

// Truncate implements checkpoint.JournalStore.
func (j *watchedJournal) Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error {
	if stored := j.w.stored(tile); upTo > stored.Seq {
		j.w.t.Errorf("tile %s: truncated up to %d, durable is %s", tile, upTo, stored)
	}
	j.mu.Lock()
	j.calls++
	fail := j.truncate
	j.mu.Unlock()
	if fail != nil {
		if err := fail(ctx, tile); err != nil {
			return err
		}
	}
	return j.Backend.Truncate(ctx, tile, upTo)
}

func (w *world) journal() *watchedJournal { return &watchedJournal{Backend: memcheckpoint.New(), w: w} }

// write commits n batches of a write-through tile: each is in the journal first.
func (j *watchedJournal) write(tile fence.TileID, n int) {
	j.w.t.Helper()
	o := j.w.owners[tile]
	if o == nil {
		o = &owner{epoch: 1}
		j.w.owners[tile] = o
	}
	head, err := j.JournalHead(context.Background(), tile)
	require.NoError(j.w.t, err)
	if head.End != o.at { // committed before it wrote through
		require.NoError(j.w.t, j.Base(context.Background(), tile,
			fence.Snapshot{Position: o.at, Sum: fence.Checksum(nil)}))
	}
	require.NoError(j.w.t, j.Seal(context.Background(), tile, o.epoch))
	for range n {
		e := fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch, Prev: o.at, Tick: fence.Tick(o.at.Seq + 1),
			Payload: []byte("e"), Position: fence.Position{Epoch: o.epoch, Seq: o.at.Seq + 1}})
		require.NoError(j.w.t, j.Append(context.Background(), tile, e))
		j.w.commit(tile, 1)
		require.Equal(j.w.t, e.Position, o.at)
	}
}

// left is how many entries the journal holds of a tile, and the lowest sequence.
func (j *watchedJournal) left(tile fence.TileID) (int, fence.Seq) {
	j.w.t.Helper()
	head, err := j.JournalHead(context.Background(), tile)
	require.NoError(j.w.t, err)
	return head.Entries, head.First.Seq
}

// TestJournalFollowsCheckpoint: a checkpoint takes with it the entries it covers and no other, once.
func TestJournalFollowsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.journal()
		c := w.journaled(j, []fence.TileID{tile}, nil)
		stop := w.run(c)
		for i := range 5 {
			j.write(tile, 7)
			s := w.play(tile, 0)
			j.write(tile, 3)
			sleep(2 * oneCadence)
			require.Equal(t, s.Position, w.stored(tile))
			n, first := j.left(tile)
			require.Equal(t, 3, n)
			require.Equal(t, s.Seq+1, first)
			if i%2 == 1 {
				w.promote(tile)
			}
		}
		sleep(time.Minute)
		stop()
		assert.Equal(t, 5, j.calls, "nothing new, nothing to truncate")
		require.Len(t, w.truncated, 5)
		assert.Equal(t, checkpoint.TruncatedInfo{Tile: tile, UpTo: w.stored(tile).Seq}, w.truncated[4])
		assert.EqualValues(t, 5, c.Stats().Truncated)
	})
}

// TestJournalTruncatedAfterRestart: a Checkpointer that ended between the write and the truncation leaves it to
// the next one, although there is no newer snapshot.
func TestJournalTruncatedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.journal()
		j.write(tile, 5)
		w.play(tile, 0)
		require.NoError(t, w.checkpointer([]fence.TileID{tile}, nil).CheckpointNow(t.Context(), tile))
		n, _ := j.left(tile)
		require.Equal(t, 5, n)
		stop := w.run(w.journaled(j, []fence.TileID{tile}, nil))
		sleep(oneCadence)
		stop()
		n, _ = j.left(tile)
		assert.Zero(t, n)
	})
}

// TestJournalFails: a journal that cannot be truncated is reported and tried again with growing pauses, while
// checkpoints and watermarks go on, its own tile's too.
func TestJournalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.journal()
		broken, hanging, good := tile, tile+1, tile+2
		ids := append(tiles(3), tile+3, tile+4, tile+5)
		down := errors.New("down")
		j.set(func(ctx context.Context, id fence.TileID) error {
			switch id {
			case broken:
				return down
			case hanging:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		c := w.journaled(j, ids, checkpoint.Config{Concurrency: 1}.With(
			checkpoint.Tuning{Timeout: 2 * time.Second}))
		stop := w.run(c)
		for range 10 {
			for _, id := range ids {
				j.write(id, 3)
				w.play(id, 0)
			}
			require.NoError(t, c.CheckpointNow(t.Context(), broken))
			sleep(2 * oneCadence)
			for _, id := range []fence.TileID{broken, good} {
				require.Equal(t, w.owners[id].at, w.stored(id))
				require.Equal(t, w.owners[id].at.Seq, w.marked(id).Seq)
			}
			n, _ := j.left(good)
			require.Zero(t, n)
		}
		stats := c.Stats()
		assert.Zero(t, stats.Behind)
		assert.Zero(t, stats.Failed)
		assert.Positive(t, stats.TruncateFailed)
		failures := 0
		for _, i := range seen(w, &w.truncated) {
			if i.Tile == broken {
				failures++
				assert.Equal(t, failures, i.Failures)
				require.ErrorIs(t, i.Err, down)
			}
		}
		assert.Less(t, failures, 40, "they back off")
		j.set(nil)
		sleep(retryMax + oneCadence)
		for _, id := range ids {
			n, _ := j.left(id)
			assert.Zero(t, n, fmt.Sprint(id-tile))
		}
		stop()
		assert.Empty(t, w.failed)
	})
}

// TestJournalKeptWhileStoreIsDown: what is not durable elsewhere stays in the journal, however long it takes.
func TestJournalKeptWhileStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.journal()
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			_ = next
			return &fence.StoreError{Op: "checkpoint put", Tile: tile, Outcome: fence.ErrUnknownOutcome,
				Err: checkpoint.ErrThrottled}
		})
		c := w.journaled(j, []fence.TileID{tile}, nil)
		stop := w.run(c)
		for range 20 {
			j.write(tile, 3)
			w.play(tile, 0)
			sleep(oneCadence)
		}
		n, first := j.left(tile)
		assert.Equal(t, 60, n)
		assert.Equal(t, fence.Seq(1), first)
		assert.Zero(t, j.calls)
		stats := c.Stats()
		assert.Positive(t, stats.Throttled)
		assert.Equal(t, stats.Failed, stats.Throttled)
		w.store.set(nil)
		sleep(retryMax)
		n, _ = j.left(tile)
		assert.Zero(t, n)
		stop()
	})
}

func TestJournalEndSaysWhy(t *testing.T) {
	j := checkpoint.JournalEnd{Sealed: 7, End: fence.Position{Epoch: 7, Seq: 20, Chain: 3}}
	current := fence.Owner{Tile: tile, Epoch: 7, Position: j.End}
	assert.Equal(t, &fence.RefusedError{Reason: fence.ErrStale, Tile: tile, Epoch: 6, Current: current},
		j.Seal(tile, 6))
	assert.Equal(t, &fence.RefusedError{Reason: fence.ErrStale, Tile: tile, Epoch: 6, Current: current},
		j.Base(tile, fence.Position{Epoch: 6, Seq: 100}))
	assert.Equal(t, &fence.RefusedError{Reason: fence.ErrRegress, Tile: tile, Epoch: 7, Current: current},
		j.Base(tile, fence.Position{Epoch: 7, Seq: 19}))
	require.NoError(t, j.Base(tile, fence.Position{Epoch: 7, Seq: 20}))
	require.NoError(t, j.Base(tile, fence.Position{Epoch: 8, Seq: 19}))
	write, err := j.Append(tile, &fence.Entry{Position: fence.Position{Epoch: 7, Seq: 31},
		Prev: fence.Position{Epoch: 7, Seq: 30}})
	require.False(t, write)
	assert.Equal(t, &fence.RefusedError{Reason: fence.ErrBehind, Tile: tile, Epoch: 7, Current: current}, err)
}
