package tile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// busyRules is a game in which something happens in every tick.
type busyRules struct{ ledgerRules }

func (r *busyRules) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) {
	return [][]byte{{'x'}}, nil
}

func (r *busyRules) Apply(fence.Tick, [][]byte) error { return nil }

// census counts, over all tiles, what falls into which tick.
type census struct {
	fence.Store
	mu        sync.Mutex
	confirms  map[fence.Tick]int
	snapshots map[fence.Tick]int
}

func (c *census) Commit(ctx context.Context, b fence.Commit) (fence.Receipt, error) {
	if b.Replicas != 0 && !b.Install {
		c.mu.Lock()
		c.confirms[b.Tick]++
		c.mu.Unlock()
	}
	return c.Store.Commit(ctx, b)
}

func (c *census) SaveSnapshot(ctx context.Context, s fence.SnapshotWrite) error {
	c.mu.Lock()
	c.snapshots[s.Tick]++
	c.mu.Unlock()
	return c.Store.SaveSnapshot(ctx, s)
}

// TestTilesBornTogetherDoNotConfirmAndSaveTogether.
func TestTilesBornTogetherDoNotConfirmAndSaveTogether(t *testing.T) {
	const tiles, confirmEvery, snapshotEvery = 400, 10, 60
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := &census{Store: w.store, confirms: map[fence.Tick]int{}, snapshots: map[fence.Tick]int{}}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i := range tiles {
			id := testTile + fence.TileID(i)<<30 // as neighbours differ
			p, err := tile.New(id, "a:1", tile.Seams{Authority: w.authority, Store: c, Log: w.log}, &busyRules{}, nil)
			require.NoError(t, err)
			running.Go(func() { assert.NoError(t, p.Run(ctx)) })
		}
		time.Sleep(62 * 500 * time.Millisecond) // the ticks 1 to 61 are over
		c.mu.Lock()
		defer func() {
			c.mu.Unlock()
			stop()
			running.Wait()
		}()
		saved := 0
		for tick := fence.Tick(1); tick <= 60; tick++ {
			assert.InDelta(t, tiles/confirmEvery, c.confirms[tick], 24, "tick %d", tick) // four standard deviations
			assert.InDelta(t, tiles/snapshotEvery, c.snapshots[tick], 11, "tick %d", tick)
			saved += c.snapshots[tick]
		}
		assert.Equal(t, tiles, saved, "each tile once in its interval")
	})
}

// TestStoreThatIsTooSlowIsAskedLessOften than one that fails at once, and not by all tiles together.
func TestStoreThatIsTooSlowIsAskedLessOften(t *testing.T) {
	waits := func(slow bool, id fence.TileID) (waits []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var ended time.Time
			p, err := tile.New(id, "a:1", w.seams(),
				&ledgerRules{},
				&tile.Config{Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
					if len(waits) == 8 {
						return w.store.Commit(ctx, c)
					}
					if !ended.IsZero() {
						waits = append(waits, time.Since(ended))
					}
					if slow {
						<-ctx.Done()
					}
					ended = time.Now()
					return fence.Receipt{}, &fence.StoreError{Op: "commit", Tile: id, Outcome: fence.ErrUnknownOutcome,
						Err: errors.New("overload")}
				}})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			time.Sleep(15 * time.Second)
			stop()
			require.NoError(t, <-done)
		})
		return waits
	}
	const ms = time.Millisecond
	assert.Equal(t, []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 320 * ms, 320 * ms},
		waits(false, testTile),
		"a new master is found soon")
	places := map[time.Duration]bool{}
	for i := range 20 {
		got := waits(true, testTile+fence.TileID(i)<<30)
		require.Len(t, got, 8)
		for n, wait := range got {
			assert.GreaterOrEqual(t, wait, min(500*ms/8<<n, 160*ms))
			assert.LessOrEqual(t, wait, min(500*ms/4<<n, 320*ms))
		}
		places[got[0].Round(5*ms)] = true
	}
	assert.Greater(t, len(places), 6, "at their own times")
}
