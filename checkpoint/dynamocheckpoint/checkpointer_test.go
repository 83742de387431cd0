package dynamocheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/memstream"
)

// tiles is a few tiles that play on.
type tiles struct {
	t     *testing.T
	fence *memfence.Store
	log   *memstream.Log
	at    map[fence.TileID]fence.Position
}

func newTiles(t *testing.T, n int) *tiles {
	w := &tiles{t: t, fence: memfence.New(), at: map[fence.TileID]fence.Position{}}
	w.log = memstream.New(w.fence)
	for i := range n {
		w.play(tile + fence.TileID(i))
	}
	return w
}

func (w *tiles) ids() []fence.TileID {
	var ids []fence.TileID
	for id := range w.at {
		ids = append(ids, id)
	}
	return ids
}

// play commits a batch and saves a snapshot of 3,500 bytes: four chunks in the small stores of these tests.
func (w *tiles) play(id fence.TileID) {
	w.t.Helper()
	r, err := w.fence.Commit(context.Background(), fence.Commit{Tile: id, Epoch: 1, Contact: "a:1", Prev: w.at[id],
		Tick: fence.Tick(w.at[id].Seq + 1), Payload: []byte("e"), Install: true})
	require.NoError(w.t, err)
	w.at[id] = r.Position
	require.NoError(w.t, w.fence.SaveSnapshot(context.Background(), fence.SnapshotWrite{Tile: id, Position: r.Position,
		Tick: fence.Tick(r.Position.Seq), Blob: snapshot(1, r.Position.Seq, 3500).Blob}))
}

// run runs Checkpointers until the test calls stop.
func run(t *testing.T, checkpointers ...*checkpoint.Checkpointer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, c := range checkpointers {
		running.Go(func() { assert.NoError(t, c.Run(ctx)) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// upToDate waits until the store holds the latest snapshot of every tile, whole.
func (w *tiles) upToDate(st checkpoint.Store) {
	w.t.Helper()
	waittest.Until(w.t, func() bool {
		for id, at := range w.at {
			s, found, err := st.Get(context.Background(), id)
			if err != nil || !found || s.Position != at {
				return false
			}
		}
		return true
	}, 30*time.Second, 10*time.Millisecond)
}

var quick = checkpoint.Config{Cadence: 20 * time.Millisecond, RetryMax: 80 * time.Millisecond}

// TestCheckpointerThrottled has a table that refuses every request for want of capacity until so many were
// refused. The ticks go on meanwhile, the failures say what it was, and afterwards everything is durable,
// without a chunk left over.
func TestCheckpointerThrottled(t *testing.T) {
	t.Parallel()
	const most = 150
	table := newTable(t)
	var refused atomic.Int32
	st := newSmall(t, table, func(_ context.Context, _ any, send func() error) error {
		n := refused.Add(1)
		switch {
		case n > most:
			return send()
		case n%2 == 0:
			return &types.ProvisionedThroughputExceededException{}
		}
		return &types.ThrottlingException{}
	})
	w := newTiles(t, 5)
	cfg := quick
	var mu sync.Mutex
	pauses := map[time.Duration]bool{}
	cfg.Hooks.Failed = func(i checkpoint.FailedInfo) {
		mu.Lock()
		defer mu.Unlock()
		pauses[i.Retry] = true
		assert.ErrorIs(t, i.Err, checkpoint.ErrThrottled)
	}
	c, err := checkpoint.New(w.log, st, nil, w.ids(), &cfg)
	require.NoError(t, err)
	stop := run(t, c)
	for refused.Load() < most {
		for _, id := range w.ids() {
			w.play(id)
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.upToDate(newSmall(t, table, nil))
	stop()
	stats := c.Stats()
	assert.Positive(t, stats.Throttled)
	assert.Equal(t, stats.Failed, stats.Throttled)
	assert.Greater(t, len(pauses), 3, "jitter")
	for _, id := range w.ids() {
		assert.Len(t, partsOf(t, table, id), items(3500))
	}
}

// TestTwoCheckpointers runs two on the same tiles and one table, one of them over a wire that is slow and loses
// requests and answers. A reader never meets a checkpoint that went back or is made of two, and in the end
// nothing but the latest snapshots is in the table.
func TestTwoCheckpointers(t *testing.T) {
	t.Parallel()
	source := seed.Of(t)
	table := newTable(t)
	rng := rand.New(rand.NewPCG(source, 0))
	var mu sync.Mutex
	slow := newSmall(t, table, func(_ context.Context, _ any, send func() error) error {
		mu.Lock()
		dice, delay := rng.IntN(12), time.Duration(rng.IntN(8))*time.Millisecond
		mu.Unlock()
		time.Sleep(delay)
		switch dice {
		case 0:
			return &requestError{io.ErrUnexpectedEOF}
		case 1:
			_ = send()
			return errKilled
		}
		return send()
	})
	w := newTiles(t, 3)
	one, err := checkpoint.New(w.log, newSmall(t, table, nil), nil, w.ids(), &quick)
	require.NoError(t, err)
	two, err := checkpoint.New(w.log, slow, nil, w.ids(), &quick)
	require.NoError(t, err)
	stop := run(t, one, two)
	reading, cancel := context.WithCancel(t.Context())
	readers := make(chan error, 1)
	go func() { readers <- watch(reading, newSmall(t, table, nil)) }()
	for range 60 {
		for _, id := range w.ids() {
			w.play(id)
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.upToDate(newSmall(t, table, nil))
	cancel()
	require.NoError(t, <-readers)
	stop()
	last := newSmall(t, table, nil)
	for _, id := range w.ids() {
		w.play(id)
		s, _, err := w.log.Snapshot(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, last.Put(t.Context(), id, s)) // its first Put of a tile collects orphans
		assert.Len(t, partsOf(t, table, id), items(3500))
	}
}

// TestKilledAnywhere kills a Checkpointer's process after each of its first requests in turn, and starts
// another. What the table holds is always a snapshot that was, and the next process leaves nothing behind.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	w := newTiles(t, 1)
	last := fence.Position{}
	for requests := range 14 {
		w.play(tile)
		var made atomic.Int32
		killed := newSmall(t, table, killAt(func(any) bool { return int(made.Add(1)) > requests }))
		c, err := checkpoint.New(w.log, killed, nil, w.ids(), nil)
		require.NoError(t, err)
		err = c.CheckpointNow(t.Context(), tile)
		require.True(t, err == nil || errors.Is(err, errKilled), "%v", err)

		st := newSmall(t, table, nil)
		s, found, err := st.Get(t.Context(), tile)
		require.NoError(t, err, "after %d requests", requests)
		require.True(t, !found && last.IsZero() || s.Position == last || s.Position == w.at[tile], fmt.Sprint(requests))
		require.False(t, found && s.Sum != fence.Checksum(snapshot(1, s.Seq, 3500).Blob), "a mixture")

		w.play(tile)
		next, err := checkpoint.New(w.log, st, nil, w.ids(), nil)
		require.NoError(t, err)
		require.NoError(t, next.CheckpointNow(t.Context(), tile))
		last = w.at[tile]
		require.Len(t, parts(t, table), items(3500), "after %d requests", requests)
	}
}
