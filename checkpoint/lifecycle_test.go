package checkpoint_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
)

// TestDrain cancels while every tile has a newer snapshot and some hang.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(40)
		for _, id := range ids {
			w.play(id, 1)
		}
		stop := w.run(w.checkpointer(ids, checkpoint.Config{Concurrency: 2, Drain: 20 * time.Second}.With(
			checkpoint.Tuning{Timeout: 3 * time.Second})))
		sleep(oneCadence)
		for _, id := range ids {
			w.play(id, 1)
		}
		w.store.set(stall(func(id fence.TileID) bool { return id < tile+2 }))
		begin := time.Now()
		stop()
		assert.LessOrEqual(t, time.Since(begin), 20*time.Second)
		for _, id := range ids[2:] {
			assert.Equal(t, w.owners[id].at, w.stored(id))
			assert.Equal(t, w.owners[id].at.Seq, w.marked(id).Seq)
		}
		assert.Equal(t, []checkpoint.DrainedInfo{{Tiles: 40, Behind: 2, Took: time.Since(begin)}}, w.drained)
	})
}

// TestDrainIsBounded hangs everything.
func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(40)
		for _, id := range ids {
			w.play(id, 1)
		}
		w.store.set(stall(func(fence.TileID) bool { return true }))
		stop := w.run(w.checkpointer(ids, nil))
		sleep(time.Minute)
		begin := time.Now()
		stop()
		assert.Equal(t, drain, time.Since(begin))
		assert.Equal(t, []checkpoint.DrainedInfo{{Tiles: 40, Behind: 40, Took: drain}}, w.drained)
	})
}

// TestDrainLetsFinish cancels while a slow write is under way.
func TestDrainLetsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.play(tile, 1)
		started := make(chan struct{}, 1)
		w.store.set(func(ctx context.Context, _ fence.TileID, next func() error) error {
			started <- struct{}{}
			select {
			case <-time.After(8 * time.Second):
				return next()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		stop := w.run(w.checkpointer([]fence.TileID{tile}, nil))
		<-started
		stop()
		assert.Equal(t, s.Position, w.stored(tile))
		assert.Empty(t, w.failed)
		assert.Len(t, w.durable, 1, "nothing was left for the last pass")
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.checkpointer([]fence.TileID{tile}, nil)
		stop := w.run(c)
		synctest.Wait()
		require.ErrorIs(t, c.Run(t.Context()), fence.ErrAlreadyRun)
		stop()

		s := w.play(tile, 1)
		stop = w.run(c)
		sleep(oneCadence)
		assert.Equal(t, s.Position, w.stored(tile))
		stop()
	})
}

func TestAddRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.checkpointer(nil, nil)
		stop := w.run(c)
		sleep(time.Minute)
		ids := tiles(3)
		for _, id := range ids {
			w.play(id, 1)
			require.NoError(t, c.Add(id))
			require.NoError(t, c.Add(id))
		}
		require.ErrorIs(t, c.Add(77, 0), fence.ErrInvalidArgument)
		sleep(oneCadence)
		for _, id := range ids {
			require.Equal(t, w.owners[id].at, w.stored(id))
			w.play(id, 1)
		}
		c.Remove(ids[1], ids[1])
		c.Remove(12345)
		sleep(oneCadence)
		stop()
		assert.Equal(t, w.owners[ids[0]].at, w.stored(ids[0]))
		assert.NotEqual(t, w.owners[ids[1]].at, w.stored(ids[1]))
		assert.Equal(t, w.owners[ids[2]].at, w.stored(ids[2]))
		assert.Equal(t, 2, w.drained[0].Tiles)
	})
}

// TestRemoveUnderWay removes a tile while it is written: the write finishes, and the tile does not come
// back.
func TestRemoveUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.play(tile, 1)
		started, finish := make(chan struct{}), make(chan struct{})
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			close(started)
			<-finish
			return next()
		})
		c := w.checkpointer([]fence.TileID{tile}, nil)
		stop := w.run(c)
		<-started
		c.Remove(tile)
		close(finish)
		sleep(oneCadence)
		w.store.set(nil)
		w.play(tile, 1)
		sleep(2 * oneCadence)
		stop()
		assert.Equal(t, s.Position, w.stored(tile))
	})
}

func TestCheckpointNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.checkpointer([]fence.TileID{tile}, nil)
		require.ErrorIs(t, c.CheckpointNow(t.Context(), tile+1), fence.ErrInvalidArgument)
		require.ErrorIs(t, c.CheckpointNow(t.Context(), tile), checkpoint.ErrNoSnapshot)

		s := w.play(tile, 3)
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Equal(t, s.Position, w.stored(tile))
		assert.Equal(t, s.Seq, w.marked(tile).Seq)
		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Len(t, w.durable, 1)
		assert.Empty(t, w.failed)
	})
}

// TestCheckpointNowWaits calls it while Run is writing an older snapshot of the tile.
func TestCheckpointNowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.play(tile, 3)
		started := make(chan struct{}, 2)
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			started <- struct{}{}
			time.Sleep(2 * time.Second)
			return next()
		})
		c := w.checkpointer([]fence.TileID{tile}, nil)
		stop := w.run(c)
		<-started
		s := w.play(tile, 3)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.CheckpointNow(ctx, tile)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, fence.ErrNotApplied)

		require.NoError(t, c.CheckpointNow(t.Context(), tile))
		assert.Equal(t, s.Position, w.stored(tile))
		stop()
	})
}

// TestCheckpointNowHoldsTile has CheckpointNow at work on a tile while it falls due, and still when Run is
// cancelled: Run does not wait for it longer than for its own.
func TestCheckpointNowHoldsTile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.play(tile, 3)
		puts := 0
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			puts++
			time.Sleep(time.Minute)
			return next()
		})
		c := w.checkpointer([]fence.TileID{tile}, nil)
		now := make(chan error)
		go func() { now <- c.CheckpointNow(context.Background(), tile) }()
		synctest.Wait()
		stop := w.run(c)
		sleep(3 * oneCadence)
		begin := time.Now()
		stop()
		assert.Equal(t, drain, time.Since(begin))
		assert.Equal(t, 1, w.drained[0].Behind)
		<-now
		assert.Equal(t, 1, puts)
	})
}

// TestErrorsSay looks at what an operator reads.
func TestErrorsSay(t *testing.T) {
	at := func(epoch fence.Epoch, seq fence.Seq, chain fence.Chain) fence.Position {
		return fence.Position{Epoch: epoch, Seq: seq, Chain: chain}
	}
	for want, err := range map[string]error{
		"is not older": &checkpoint.OlderError{Tile: tile, Stored: at(2, 20, 1),
			Presented: at(2, 19, 1)},
		"regressed under a higher": &checkpoint.OlderError{Tile: tile, Stored: at(2, 20, 1),
			Presented: at(3, 19, 1)},
		"another history stands": &checkpoint.OlderError{Tile: tile, Stored: at(2, 20, 1),
			Presented: at(2, 20, 2)},
		"of an older epoch than 7":      &checkpoint.FloorError{Tile: tile, Floor: 7, Presented: at(2, 20, 1)},
		"tile 85283473fffffff: checkpo": &checkpoint.OlderError{Tile: tile},
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.Equal(t, "reading writing marking stage(0)",
		fmt.Sprint(checkpoint.Reading, " ", checkpoint.Writing, " ", checkpoint.Marking, " ", checkpoint.Stage(0)))
}

func TestNewArguments(t *testing.T) {
	log, store := memstream.New(memfence.New()), memcheckpoint.New()
	_, err := checkpoint.New(nil, store, nil, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = checkpoint.New(log, nil, nil, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = checkpoint.New(log, store, nil, []fence.TileID{0}, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	for name, cfg := range map[string]checkpoint.Config{
		"Cadence":     {Cadence: -1},
		"RetryMax":    {RetryMax: -1},
		"Drain":       {Drain: -1},
		"Concurrency": {Concurrency: -1},
	} {
		_, err := checkpoint.New(log, store, nil, nil, &cfg)
		var argument *fence.ArgumentError
		require.ErrorAs(t, err, &argument, name)
		assert.Equal(t, name, argument.Field)
	}
}

func TestRestore(t *testing.T) {
	store := memcheckpoint.New()
	_, found, err := checkpoint.Restore(t.Context(), store, tile)
	require.NoError(t, err)
	require.False(t, found)

	blob := []byte("state")
	want := fence.Snapshot{Position: fence.Position{Epoch: 3, Seq: 70}, Sum: fence.Checksum(blob), Blob: blob}
	require.NoError(t, store.Put(t.Context(), tile, want))
	got, found, err := checkpoint.Restore(t.Context(), store, tile)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, want, got)

	require.True(t, store.(interface{ Damage(fence.TileID) bool }).Damage(tile))
	_, found, err = checkpoint.Restore(t.Context(), store, tile)
	require.ErrorIs(t, err, fence.ErrCorrupt)
	assert.False(t, found)

	_, _, err = checkpoint.Restore(t.Context(), careless{}, tile)
	require.ErrorIs(t, err, fence.ErrCorrupt)
}

// careless is a Store that does not verify what it reads.
type careless struct{ checkpoint.Store }

// Get implements checkpoint.Store.
func (careless) Get(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
	return fence.Snapshot{Sum: "damaged"}, true, nil
}
