package tile_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

const mebibyte = 1 << 20

// bulk is a game whose every action makes almost a mebibyte of events.
type bulk struct{}

func (bulk) Restore([]byte) error             { return nil }
func (bulk) Apply(fence.Tick, [][]byte) error { return nil }
func (bulk) Snapshot() ([]byte, error)        { return []byte("small"), nil }
func (bulk) Resolve(_ fence.Tick, in []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range in {
		for range 15 {
			events = append(events, make([]byte, stream.MaxEvent))
		}
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

// filler runs a bulk game with the smallest bound there is.
type filler struct {
	*tile.TileProcessor
	*world
	refuses atomic.Bool // the store saves no snapshot
	saved   []tile.SnapshotInfo
	log     strings.Builder
	stop    func()
}

func fill(t *testing.T) *filler {
	f := &filler{world: newWorld(t)}
	f.start(t)
	t.Cleanup(func() {
		f.refuses.Store(false)
		f.stop()
	})
	return f
}

// start runs an owner, the first or the next.
func (f *filler) start(t *testing.T) {
	t.Helper()
	cfg := &tile.Config{Limits: tile.Limits{MaxStreamBytes: 8 * mebibyte, QueueLimit: 4}, SnapshotEvery: 1000,
		Logger: slog.New(slog.NewTextHandler(&f.log, nil)),
		Hooks:  tile.Hooks{Snapshotted: func(i tile.SnapshotInfo) { f.saved = append(f.saved, i) }}}
	var err error
	f.TileProcessor, err = tile.New(testTile, "a:1",
		tile.Seams{Authority: f.authority, Store: intercept.StoreOf(f.store, refusing("snapshot", &f.refuses)),
			Log: f.world.log}, bulk{}, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = func() {
		cancel()
		assert.NoError(t, <-done)
	}
	for f.Status().State != tile.Serving {
		time.Sleep(time.Millisecond)
	}
}

// act makes one action happen and returns how many bytes the stream takes then.
func (f *filler) act(t *testing.T) int64 {
	t.Helper()
	_, err := f.Submit(t.Context(), tile.Intent{Tile: testTile})
	require.NoError(t, err)
	return f.bytes(t)
}

func (f *filler) bytes(t *testing.T) int64 {
	t.Helper()
	stats, err := f.world.log.Stat(t.Context(), []fence.TileID{testTile})
	require.NoError(t, err)
	return stats[0].Memory
}

// TestStreamBoundTakesTheHoldFromConsumers: a consumer that has stopped does not make the stream grow past its
// bound. There is an alarm before anything is taken from it, and it is told.
func TestStreamBoundTakesTheHoldFromConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fill(t)
		mark := stream.MarkWrite{Tile: testTile, Consumer: stream.BridgeAcked, Seq: 1}
		require.NoError(t, stream.MarkOne(t.Context(), f.world.log, mark))
		highest := int64(0)
		for range 40 {
			highest = max(highest, f.act(t))
		}
		require.LessOrEqual(t, highest, int64(9*mebibyte), "the bound and the batch that went past it")
		require.Greater(t, highest, int64(7*mebibyte), "nothing was taken before it had to be")
		synctest.Wait()
		alarms, evictions := 0, 0
		for _, s := range f.saved {
			require.NoError(t, s.Err)
			require.NotNil(t, s.Trimmed)
			if len(s.Trimmed.Evicted) > 0 {
				evictions++
				require.Equal(t, []stream.Consumer{stream.BridgeAcked}, s.Trimmed.Evicted)
				require.Positive(t, alarms, "the alarm comes first")
			}
			if s.Alarm {
				alarms++
			}
		}
		require.Equal(t, 1, evictions)
		require.Contains(t, f.log.String(), "comes near the bound")
		require.Contains(t, f.log.String(), "no longer holds it")
		require.ErrorIs(t, stream.MarkOne(t.Context(), f.world.log, mark), stream.ErrResync)
	})
}

// TestAFullStreamStandsStill: while no snapshot can be saved the stream stays within its bound all the same: the tile
// commits nothing but refreshes of its owner hash, loses no intent, and goes on when a snapshot is there.
func TestAFullStreamStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fill(t)
		f.refuses.Store(true)
		for !f.Status().StreamFull {
			require.Less(t, f.act(t), int64(10*mebibyte))
			time.Sleep(2 * time.Second) // the next tick knows
		}
		before := f.bytes(t)
		require.Greater(t, before, int64(7*mebibyte))
		answers := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := f.Submit(context.Background(), tile.Intent{Tile: testTile})
				answers <- err
			}()
		}
		synctest.Wait()
		require.ErrorIs(t, <-answers, tile.ErrOverloaded, "the queue takes four")
		o, err := f.store.Owner(t.Context(), testTile)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		later, err := f.store.Owner(t.Context(), testTile)
		require.NoError(t, err)
		require.Greater(t, later.Tick, o.Tick+100, "the owner is alive, and says so")
		synctest.Wait()
		require.Equal(t, before, f.bytes(t))
		require.Empty(t, answers, "who waits is neither answered nor sent away")
		require.Contains(t, f.log.String(), "the tile stalls")

		f.refuses.Store(false)
		for range 4 {
			require.NoError(t, <-answers)
		}
		require.False(t, f.Status().StreamFull)
		require.Less(t, f.act(t), int64(8*mebibyte))
	})
}

// TestTheBoundOutlivesOwners: owners that come and go while no snapshot can be saved do not each fill the stream anew:
// what lies after the snapshot counts for all of them.
func TestTheBoundOutlivesOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fill(t)
		f.refuses.Store(true)
		for range 5 {
			for !f.Status().StreamFull {
				require.Less(t, f.act(t), int64(10*mebibyte))
				time.Sleep(2 * time.Second) // the next tick knows
			}
			f.stop()
			f.start(t)
			time.Sleep(2 * time.Second)
		}
		require.True(t, f.Status().StreamFull)
	})
}
