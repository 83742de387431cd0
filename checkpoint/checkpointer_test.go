package checkpoint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oneCadence is the longest a healthy tile waits.
// Defaults of checkpoint.Config.
const (
	cadence    = 5 * time.Second
	oneCadence = cadence + cadence/10
	retryMax   = 30 * time.Second
	drain      = 10 * time.Second
)

func TestFollowsSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		for range 5 {
			s := w.play(tile, 10)
			sleep(oneCadence)
			assert.Equal(t, s.Position, w.stored(tile))
			assert.Equal(t, s.Seq, w.marked(tile).Seq)
		}
		stop()
		infos := seen(w, &w.durable)
		require.Len(t, infos, 5)
		for _, i := range infos {
			assert.Equal(t, tile, i.Tile)
			assert.Positive(t, i.Bytes)
			assert.LessOrEqual(t, i.Lag, oneCadence)
		}
		assert.Empty(t, w.failed)
		assert.Empty(t, w.skipped)
	})
}

// TestSpread sees that many tiles started together do not reach the store together, at first or later.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(500)
		for _, id := range ids {
			w.play(id, 1)
		}
		start := time.Now()
		var buckets [5]int
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			buckets[min(4, int(time.Since(start)/time.Second))]++
			return next()
		})
		stop := w.run(w.checkpointer(ids, &checkpoint.Config{Concurrency: 1}))
		sleep(oneCadence)
		for i, n := range buckets {
			assert.InDelta(t, 100, n, 60, "second %d", i)
		}
		stop()
	})
}

// TestStalledTiles hangs the store for more tiles than there are slots. The others fall behind only
// until the stalled attempts have timed out once, then never again.
func TestStalledTiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(30)
		stalled := func(id fence.TileID) bool { return id < tile+5 }
		w.store.set(stall(stalled))
		cfg := checkpoint.Config{Concurrency: 2}.With(checkpoint.Tuning{Timeout: 3 * time.Second})
		for _, id := range ids {
			w.play(id, 1)
		}
		stop := w.run(w.checkpointer(ids, cfg))
		sleep(15*time.Second + oneCadence)
		for range 10 {
			latest := map[fence.TileID]fence.Position{}
			for _, id := range ids {
				latest[id] = w.play(id, 1).Position // the tick does not notice
			}
			sleep(oneCadence)
			for _, id := range ids {
				if stalled(id) {
					assert.Zero(t, w.stored(id))
					assert.Zero(t, w.marked(id))
				} else {
					assert.Equal(t, latest[id], w.stored(id))
				}
			}
		}
		w.store.set(nil)
		sleep(retryMax + oneCadence)
		for _, id := range ids {
			assert.Equal(t, w.owners[id].at, w.stored(id))
		}
		stop()
		for _, i := range w.failed {
			require.True(t, stalled(i.Tile))
			require.ErrorIs(t, i.Err, context.DeadlineExceeded)
			require.Equal(t, checkpoint.Writing, i.Stage)
		}
	})
}

// TestBackoff throttles one tile for a while and looks at when it is tried.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.play(tile, 3)
		throttled := errors.New("throttled")
		var tries []time.Time
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			tries = append(tries, time.Now())
			if len(tries) <= 8 {
				return throttled
			}
			return next()
		})
		start := time.Now()
		stop := w.run(w.checkpointer([]fence.TileID{tile}, &checkpoint.Config{RetryMax: 20 * time.Second}))
		sleep(5 * time.Minute)
		stop()
		require.Len(t, tries, 9)
		require.Len(t, w.failed, 8)
		want := time.Second
		for i, f := range w.failed {
			assert.Equal(t, i+1, f.Failures)
			require.ErrorIs(t, f.Err, throttled)
			assert.Equal(t, f.Retry, tries[i+1].Sub(tries[i]))
			assert.GreaterOrEqual(t, f.Retry, want/2)
			assert.LessOrEqual(t, f.Retry, want)
			assert.Equal(t, tries[i].Sub(start), f.Lag)
			want = min(2*want, 20*time.Second)
		}
		require.Len(t, w.durable, 1)
		assert.Equal(t, s.Position, w.durable[0].Position)
		assert.Equal(t, tries[8].Sub(start), w.durable[0].Lag)
		assert.Equal(t, s.Seq, w.marked(tile).Seq)
	})
}

// TestCorruptSnapshot damages the snapshot in the coordination store, or on its way from a log that does
// not look: it is reported and never written, and the next good one is.
func TestCorruptSnapshot(t *testing.T) {
	damage := func(s *fence.Snapshot) { s.Blob = append([]byte("X"), s.Blob...) }
	for name, corrupt := range map[string]func(w *world){
		"stored": func(w *world) {
			w.fence.Update(tile, func(s *memfence.State) { damage(s.Snapshot) })
		},
		"on its way": func(w *world) {
			w.log.change(func(l *watchedLog) { l.snapshot = func(s *fence.Snapshot) error { damage(s); return nil } })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				good := w.play(tile, 5)
				stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
				sleep(oneCadence)
				w.play(tile, 5)
				corrupt(w)
				sleep(3 * oneCadence)
				assert.Equal(t, good.Position, w.stored(tile))
				assert.Equal(t, good.Seq, w.marked(tile).Seq)
				skipped := seen(w, &w.skipped)
				require.NotEmpty(t, skipped)
				require.ErrorIs(t, skipped[0].Err, fence.ErrCorrupt)
				assert.Greater(t, skipped[len(skipped)-1].Lag, 2*cadence)

				w.log.change(func(l *watchedLog) { l.snapshot = nil })
				next := w.play(tile, 1)
				sleep(oneCadence)
				assert.Equal(t, next.Position, w.stored(tile))
				stop()
				assert.Empty(t, w.failed)
			})
		})
	}
}

// TestEpochFloor shows a snapshot of a lower epoch after one of a higher epoch was seen but not stored, so
// that only the Checkpointer's own floor stands in the way.
func TestEpochFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.play(tile, 5)
		w.promote(tile)
		w.play(tile, 5)
		w.store.set(func(context.Context, fence.TileID, func() error) error { return errors.New("down") })
		c := w.checkpointer([]fence.TileID{tile}, nil)
		require.Error(t, c.CheckpointNow(t.Context(), tile))
		w.store.set(nil)

		w.log.change(func(l *watchedLog) { l.snapshot = func(s *fence.Snapshot) error { *s = old; return nil } })
		err := c.CheckpointNow(t.Context(), tile)
		var floor *checkpoint.FloorError
		require.ErrorAs(t, err, &floor)
		assert.Equal(t, checkpoint.FloorError{Tile: tile, Floor: 2, Presented: old.Position}, *floor)
		require.ErrorIs(t, err, fence.ErrStale)
		assert.Zero(t, w.stored(tile))
		assert.Len(t, w.skipped, 1)

		w.log.change(func(l *watchedLog) { l.snapshot = nil })
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Equal(t, w.owners[tile].at, w.stored(tile))
	})
}

// TestASnapshotOfNoOwner: its epoch or its sequence was written past the library. It does not come into the durable
// store, which would refuse the tile's own ever after, and the checkpointer goes on when it is repaired.
func TestASnapshotOfNoOwner(t *testing.T) {
	for _, forge := range []func(*fence.Snapshot){
		func(s *fence.Snapshot) { s.Epoch = fence.MaxRetired + 2 },
		func(s *fence.Snapshot) { s.Epoch = fence.MaxNumber },
		func(s *fence.Snapshot) { s.Seq = fence.FarSeq + 1 },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.play(tile, 5)
			c := w.checkpointer([]fence.TileID{tile}, nil)
			w.log.change(func(l *watchedLog) { l.snapshot = func(s *fence.Snapshot) error { forge(s); return nil } })
			require.ErrorIs(t, c.CheckpointNow(t.Context(), tile), fence.ErrCorrupt)
			assert.Zero(t, w.stored(tile))
			w.log.change(func(l *watchedLog) { l.snapshot = nil })
			require.NoError(t, c.CheckpointNow(t.Context(), tile))
			w.play(tile, 1)
			w.log.change(func(l *watchedLog) { l.snapshot = func(s *fence.Snapshot) error { forge(s); return nil } })
			require.ErrorIs(t, c.CheckpointNow(t.Context(), tile), fence.ErrCorrupt)
			w.log.change(func(l *watchedLog) { l.snapshot = nil })
			require.NoError(t, c.CheckpointNow(t.Context(), tile))
			assert.Equal(t, w.owners[tile].at, w.stored(tile))
		})
	}
}

// TestAFloorThatWasNone: the durable store failed while a snapshot of an epoch that was never minted was there. The
// floor that it leaves does not outlive it.
func TestAFloorThatWasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		good := w.play(tile, 5)
		w.commit(tile, 1)
		w.store.set(func(context.Context, fence.TileID, func() error) error { return errors.New("down") })
		c := w.checkpointer([]fence.TileID{tile}, nil)
		w.log.change(func(l *watchedLog) {
			l.snapshot = func(s *fence.Snapshot) error { s.Epoch += fence.EpochLeap + 1; return nil }
		})
		require.Error(t, c.CheckpointNow(t.Context(), tile))
		w.store.set(nil)
		w.log.change(func(l *watchedLog) { l.snapshot = nil })
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Equal(t, good.Position, w.stored(tile))
	})
}

// TestRegressRefused loses the end of the stream and its owner, as a failover may: a higher epoch goes on
// from a lower sequence. It is refused and reported until it has caught up.
func TestRegressRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		high := w.play(tile, 10)
		c := w.checkpointer([]fence.TileID{tile}, nil)
		require.NoError(t, c.CheckpointNow(t.Context(), tile))

		w.fence.Update(tile, func(s *memfence.State) {
			*s = memfence.State{Entries: s.Entries[:5]}
			w.owners[tile].at = s.Entries[4].Position
		})
		w.promote(tile)
		low := w.play(tile, 2)
		err := c.CheckpointNow(t.Context(), tile)
		var older *checkpoint.OlderError
		require.ErrorAs(t, err, &older)
		assert.Equal(t, checkpoint.OlderError{Tile: tile, Stored: high.Position, Presented: low.Position}, *older)
		assert.False(t, older.Covers())
		assert.Equal(t, high.Position, w.stored(tile))
		assert.Len(t, w.skipped, 1)

		caughtUp := w.play(tile, 4)
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Equal(t, caughtUp.Position, w.stored(tile))
		assert.Equal(t, caughtUp.Seq, w.marked(tile).Seq)
	})
}

// TestARebaseThatNobodyServed: a claimant has rebased the tile on a master, and no replica may have that. It is made
// durable once an owner has had a tick above it.
func TestARebaseThatNobodyServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		before := w.play(tile, 5)
		c := w.checkpointer([]fence.TileID{tile}, nil)
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		_, err := w.fence.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1", Tick: 5,
			Seq: before.Seq + fence.RebaseJump, Blob: []byte("state"), Replaces: &before.Position})
		require.NoError(t, err)
		require.ErrorContains(t, c.CheckpointNow(t.Context(), tile), "no owner has served")
		rebased, _, err := w.log.Log.Snapshot(t.Context(), tile)
		require.NoError(t, err)
		install := fence.Commit{Tile: tile, Epoch: 3, Contact: "c:1", Prev: rebased.Position, Tick: 5, Install: true}
		_, err = w.fence.Commit(t.Context(), install)
		require.NoError(t, err)
		require.ErrorContains(t, c.CheckpointNow(t.Context(), tile), "no owner has served")
		assert.Equal(t, before.Position, w.stored(tile))

		_, err = w.fence.Commit(t.Context(), fence.Commit{Tile: tile, Epoch: 3, Contact: "c:1", Prev: install.Next(),
			Tick: 6})
		require.NoError(t, err)
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Equal(t, rebased.Position, w.stored(tile))
	})
}

// TestARebaseThatIsGone: a failover undoes a rebase that no owner served on, and the owner before it goes on. The
// Checkpointer has not taken the rebase's epoch for one that was.
func TestARebaseThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		before := w.play(tile, 5)
		var promoted memfence.State // its entries are appended to, and never changed
		w.fence.Update(tile, func(s *memfence.State) { promoted = *s })
		c := w.checkpointer([]fence.TileID{tile}, nil)
		_, err := w.fence.Rebase(t.Context(), fence.Rebase{Tile: tile, Epoch: 2, Contact: "b:1", Tick: 5,
			Seq: before.Seq + fence.RebaseJump, Blob: []byte("state"), Replaces: &before.Position})
		require.NoError(t, err)
		require.ErrorContains(t, c.CheckpointNow(t.Context(), tile), "no owner has served")
		w.fence.Update(tile, func(s *memfence.State) { *s = promoted })
		later := w.play(tile, 2)
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Equal(t, later.Position, w.stored(tile))
	})
}

// TestItTellsTheDurableEpoch: an owner below it, where store and authority have forgotten a later one, hears of that.
func TestItTellsTheDurableEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.play(tile, 5)
		w.promote(tile)
		w.play(tile, 1)
		require.NoError(t, w.checkpointer([]fence.TileID{tile}, nil).CheckpointNow(t.Context(), tile))
		trimmed, err := w.log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
		require.NoError(t, err)
		assert.EqualValues(t, 2, trimmed.Shown)
	})
}

// TestStoreAhead meets a checkpoint that another checkpointer wrote: the same one, a later one, and one of a
// later epoch whose sequence the old epoch's loser had passed. None is a failure.
func TestStoreAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(s *fence.Snapshot){
			"same":        func(*fence.Snapshot) {},
			"later":       func(s *fence.Snapshot) { s.Seq += 3 },
			"later epoch": func(s *fence.Snapshot) { s.Epoch += 2; s.Seq -= 3 },
		} {
			w := newWorld(t)
			s := w.play(tile, 10)
			change(&s)
			require.NoError(t, w.store.Store.Put(t.Context(), tile, s))
			c := w.checkpointer([]fence.TileID{tile}, nil)
			require.NoError(t, c.CheckpointNow(t.Context(), tile), name)
			assert.Equal(t, s.Position, w.stored(tile), name)
			assert.Equal(t, s.Seq, w.marked(tile).Seq, name)
			require.Len(t, w.durable, 1, name)
			assert.Equal(t, s.Position, w.durable[0].Position, name)
		}
	})
}

// TestIdleTile sees that an idle tile's watermark outlives any lease, and that its snapshot is not
// fetched again for it.
func TestIdleTile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.play(tile, 5)
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		sleep(oneCadence)
		for range 120 {
			sleep(10 * time.Second)
			trimmed, err := w.log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
			require.NoError(t, err)
			require.Empty(t, trimmed.Expired)
			require.Equal(t, s.Seq, w.marked(tile).Seq)
		}
		stop()
		assert.Equal(t, 1, w.log.snapshots)
		assert.Len(t, w.durable, 1)
	})
}

// TestLeaseExpiresWhileBehind sees that a store which stays down does not hold the stream's tail for
// longer than the lease.
func TestLeaseExpiresWhileBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.play(tile, 5)
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		sleep(oneCadence)
		w.store.set(func(context.Context, fence.TileID, func() error) error { return errors.New("down") })
		w.play(tile, 5)
		trimmed, err := w.log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
		require.NoError(t, err)
		require.Equal(t, first.Seq, trimmed.Floor)
		require.Equal(t, stream.Checkpointed, trimmed.Held)

		sleep(time.Minute + oneCadence)
		trimmed, err = w.log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
		require.NoError(t, err)
		require.Empty(t, trimmed.Expired, "it is noted first that the mark is old")
		sleep(30 * time.Second)
		trimmed, err = w.log.Trim(t.Context(), stream.TrimRequest{Tile: tile, Lease: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, []stream.Consumer{stream.Checkpointed}, trimmed.Expired)
		assert.Equal(t, w.owners[tile].at.Seq, trimmed.Floor)

		w.store.set(nil)
		sleep(retryMax)
		assert.Equal(t, w.owners[tile].at.Seq, w.marked(tile).Seq)
		stop()
	})
}

// TestMarkFails sees that a watermark which cannot be moved is retried without writing again.
func TestMarkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.play(tile, 5)
		down := errors.New("down")
		w.log.change(func(l *watchedLog) { l.mark = down })
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		sleep(2 * oneCadence)
		failed := seen(w, &w.failed)
		require.NotEmpty(t, failed)
		assert.Equal(t, checkpoint.Marking, failed[0].Stage)
		require.ErrorIs(t, failed[0].Err, down)
		w.log.change(func(l *watchedLog) { l.mark = nil })
		sleep(retryMax)
		assert.Equal(t, s.Seq, w.marked(tile).Seq)
		stop()
		assert.Len(t, w.durable, 1)
	})
}
