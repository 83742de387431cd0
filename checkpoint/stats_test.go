package checkpoint_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// TestStats looks at what an operator would alarm on: nothing when all is well; which tile is furthest behind,
// and by how much, before any lease is over; and that it ends.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.checkpointer(nil, nil)
		assert.Zero(t, c.Stats())
		ids := tiles(50)
		for _, id := range ids {
			w.play(id, 1)
			require.NoError(t, c.Add(id))
		}
		stop := w.run(c)
		sleep(2 * oneCadence)
		stats := c.Stats()
		assert.LessOrEqual(t, stats.Lag, oneCadence)
		assert.Equal(t, 50, stats.Tiles)
		assert.EqualValues(t, 50, stats.Durable)
		assert.Positive(t, stats.Bytes)
		assert.Zero(t, stats.Behind+int(stats.Skipped+stats.Failed))

		bad := ids[7]
		w.store.set(stall(func(id fence.TileID) bool { return id == bad }))
		w.play(bad, 1)
		began := time.Now()
		sleep(time.Minute)
		stats = c.Stats()
		assert.Equal(t, bad, stats.LagTile)
		assert.GreaterOrEqual(t, stats.Lag, time.Since(began))
		assert.LessOrEqual(t, stats.Lag, time.Since(began)+oneCadence)
		assert.Equal(t, 1, stats.Behind)
		assert.Positive(t, stats.Failed)
		assert.Zero(t, stats.Throttled)

		w.store.set(nil)
		sleep(2 * retryMax)
		stats = c.Stats()
		assert.Zero(t, stats.Behind)
		assert.LessOrEqual(t, stats.Lag, oneCadence)
		c.Remove(bad)
		assert.Equal(t, 49, c.Stats().Tiles)
		stop()
	})
}

// TestStatsWhileStarved: attempts that neither end nor fail show in the lag alone.
func TestStatsWhileStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(100)
		for _, id := range ids {
			w.play(id, 1)
		}
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			time.Sleep(10 * time.Second)
			return next()
		})
		c := w.checkpointer(ids, &checkpoint.Config{Concurrency: 2})
		stop := w.run(c)
		sleep(time.Minute)
		assert.Empty(t, seen(w, &w.failed))
		assert.Equal(t, time.Minute, c.Stats().Lag)
		w.store.set(nil)
		sleep(time.Minute)
		stop()
	})
}

// TestThrottledForAWhile has a store without capacity for two minutes. The tiles play on; the attempts thin out,
// no two tiles' in step; and afterwards all is durable.
func TestThrottledForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(40)
		tries := make(chan struct{}, 100_000)
		w.store.set(func(_ context.Context, id fence.TileID, _ func() error) error {
			tries <- struct{}{}
			return &fence.StoreError{Op: "checkpoint put", Tile: id, Outcome: fence.ErrUnknownOutcome,
				Err: checkpoint.ErrThrottled}
		})
		c := w.checkpointer(ids, nil)
		stop := w.run(c)
		begin := time.Now()
		var perMinute []int
		for range 2 {
			for range 120 {
				for _, id := range ids {
					w.play(id, 1)
				}
				time.Sleep(time.Second / 2)
			}
			perMinute = append(perMinute, len(tries))
		}
		assert.Equal(t, 2*time.Minute, time.Since(begin), "no tick waited")
		assert.Less(t, perMinute[0], len(ids)*10, "doubling from a second to half a minute")
		assert.Less(t, perMinute[1]-perMinute[0], len(ids)*5)

		retries := map[time.Duration]bool{}
		for _, i := range seen(w, &w.failed) {
			require.ErrorIs(t, i.Err, checkpoint.ErrThrottled)
			if i.Failures == 3 {
				retries[i.Retry] = true
			}
		}
		assert.Greater(t, len(retries), len(ids)/2, "pauses with jitter")
		assert.Equal(t, len(w.failed), int(c.Stats().Throttled))
		w.store.set(nil)
		sleep(retryMax)
		for _, id := range ids {
			require.Equal(t, w.owners[id].at, w.stored(id))
			require.Equal(t, w.owners[id].at.Seq, w.marked(id).Seq)
		}
		stop()
	})
}
