package checkpoint_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
)

// TestIdleTilesShareRoundTrips counts what many idle tiles ask of the coordination store: round trips for
// many at once, no snapshot and no question about a single one; and their watermarks stay alive.
func TestIdleTilesShareRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(2000)
		for i, id := range ids {
			w.play(id, 1)
			if i%4 == 0 { // it has had no owner for a while
				w.fence.Update(id, func(s *memfence.State) { s.Owner = fence.Owner{} })
			}
		}
		stop := w.run(w.checkpointer(ids, nil))
		sleep(2 * oneCadence)
		w.log.change(func(l *watchedLog) { l.reads, l.stats, l.marks, l.lasts, l.snapshots = 0, 0, 0, 0, 0 })
		const looked = time.Minute
		sleep(looked)
		w.log.change(func(l *watchedLog) {
			looks := len(ids) * int(looked/cadence)
			assert.Less(t, l.reads, looks/10)
			assert.Less(t, l.stats, looks/10)
			assert.Less(t, l.marks, looks/10)
			assert.Zero(t, l.lasts)
			assert.Zero(t, l.snapshots)
		})
		for _, id := range ids {
			trimmed, err := w.log.Trim(t.Context(), stream.TrimRequest{Tile: id, Lease: 30 * time.Second})
			require.NoError(t, err)
			require.Empty(t, trimmed.Expired)
		}
		stop()
		assert.Zero(t, w.log.snapshots, "nor when it ends")
		assert.Equal(t, 2000, w.drained[0].Tiles)
		assert.Zero(t, w.drained[0].Behind)
	})
}

// TestSnapshotFetchedOnce: a tile that plays on is looked at many times between two snapshots, and each
// snapshot is fetched once.
func TestSnapshotFetchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.play(tile, 3)
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		sleep(oneCadence)
		for range 20 {
			w.commit(tile, 1)
			sleep(oneCadence)
			require.Equal(t, fence.Seq(3), w.marked(tile).Seq)
		}
		assert.Equal(t, 1, w.log.snapshots)
		trimmed, err := w.log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: 30 * time.Second})
		require.NoError(t, err)
		require.Empty(t, trimmed.Expired)
		next := w.play(tile, 1)
		sleep(oneCadence)
		assert.Equal(t, next.Position, w.stored(tile))
		assert.Equal(t, 2, w.log.snapshots)
		stop()
	})
}

// TestPlainLog runs over a Log that cannot be asked for the heads of snapshots.
func TestPlainLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(20)
		c, err := checkpoint.New(struct{ stream.Log }{w.log}, w.store, nil, ids, &checkpoint.Config{Hooks: w.hooks()})
		require.NoError(t, err)
		stop := w.run(c)
		for range 5 {
			for _, id := range ids {
				w.play(id, 2)
			}
			sleep(oneCadence)
			for _, id := range ids {
				require.Equal(t, w.owners[id].at, w.stored(id))
			}
		}
		for _, id := range ids {
			w.play(id, 1)
		}
		stop()
		for _, id := range ids {
			require.Equal(t, w.owners[id].at, w.stored(id), "at the end, too")
		}
		assert.Empty(t, w.failed)
	})
}

// TestHeadsRefused: a user that may not read the heads of snapshots costs more, and misses nothing.
func TestHeadsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.log.stat = &fence.StoreError{Op: "stat", Tile: tile, Outcome: fence.ErrNotApplied, Err: errors.New("NOPERM")}
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		for range 5 {
			s := w.play(tile, 2)
			sleep(oneCadence)
			require.Equal(t, s.Position, w.stored(tile))
		}
		stop()
		assert.Empty(t, w.failed)
	})
}

// TestSameSequence: a tile whose newest batch was lost with its owner, and written again by the next one under
// the same sequence, is not where its checkpoint is.
func TestSameSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		lost := w.play(tile, 5)
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		sleep(oneCadence)
		require.Equal(t, lost.Position, w.stored(tile))
		w.fence.Update(tile, func(s *memfence.State) {
			*s = memfence.State{Entries: s.Entries[:4]}
			w.owners[tile].at = s.Entries[3].Position
		})
		w.promote(tile)
		again := w.play(tile, 1)
		require.Equal(t, lost.Seq, again.Seq)
		sleep(oneCadence)
		assert.Equal(t, again.Position, w.stored(tile))
		stop()
	})
}

// TestCoordinationDown makes the coordination store unreadable for a while: every tile says so, and is up to
// date soon after it is back.
func TestCoordinationDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(300)
		for _, id := range ids {
			w.play(id, 1)
		}
		c := w.checkpointer(ids, nil)
		stop := w.run(c)
		sleep(oneCadence)
		down := &fence.StoreError{Op: "read", Outcome: fence.ErrNotApplied, Err: errors.New("down")}
		w.log.change(func(l *watchedLog) { l.read = down })
		sleep(20 * time.Second)
		assert.Equal(t, 300, c.Stats().Behind)
		failed := seen(w, &w.failed)
		require.NotEmpty(t, failed)
		for _, i := range failed {
			require.Equal(t, checkpoint.Reading, i.Stage)
			require.ErrorIs(t, i.Err, fence.ErrNotApplied)
		}
		w.log.change(func(l *watchedLog) { l.read = nil })
		for _, id := range ids {
			w.play(id, 1)
		}
		sleep(retryMax + oneCadence)
		for _, id := range ids {
			require.Equal(t, w.owners[id].at, w.stored(id))
		}
		assert.Zero(t, c.Stats().Behind)
		stop()
	})
}

// TestResync lets the lease run out and the stream be trimmed. The store says so to the next mark, which is
// no failure for a reader of snapshots.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.play(tile, 5)
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		sleep(oneCadence)
		w.log.change(func(l *watchedLog) {
			l.mark = &stream.ResyncError{Tile: tile, Consumer: stream.Checkpointed, Seq: 5, Trimmed: 9}
		})
		sleep(time.Minute)
		w.play(tile, 5)
		sleep(oneCadence)
		stop()
		assert.Empty(t, w.failed)
		assert.Len(t, w.durable, 2)
		assert.Less(t, w.log.marks, 8, "renewed, not repeated")
	})
}

// TestBoundedMemory counts the snapshots that are between the two stores at any time.
func TestBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(200)
		var mu sync.Mutex
		held, most := 0, 0
		w.log.change(func(l *watchedLog) {
			l.snapshot = func(*fence.Snapshot) error {
				mu.Lock()
				defer mu.Unlock()
				held++
				most = max(most, held)
				return nil
			}
		})
		w.store.set(func(_ context.Context, id fence.TileID, next func() error) error {
			time.Sleep(300 * time.Millisecond)
			mu.Lock()
			held--
			mu.Unlock()
			if id%5 == 0 {
				return errors.New("down")
			}
			return next()
		})
		for _, id := range ids {
			w.play(id, 1)
		}
		stop := w.run(w.checkpointer(ids, &checkpoint.Config{Concurrency: 3}))
		sleep(time.Minute)
		stop()
		assert.Equal(t, 6, most, "a slot's each, for tiles that fail and those that do not")
	})
}
