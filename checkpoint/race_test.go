package checkpoint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
)

// TestRacingCheckpointers runs two Checkpointers on the same tiles over a store that is slow, fails, and
// loses answers, while the tiles play on and change owners. No checkpoint regresses, no watermark is
// ahead of its checkpoint (see watchedLog), and when the store has recovered all are up to date.
func TestRacingCheckpointers(t *testing.T) {
	source := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rng := lockedRand{rng: rand.New(rand.NewPCG(source, 0))}
		w.store.set(func(ctx context.Context, _ fence.TileID, next func() error) error {
			select {
			case <-time.After(time.Duration(rng.n(4000)) * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			switch rng.n(4) {
			case 0:
				return errors.New("throttled")
			case 1:
				_ = next()
				return errors.New("answer lost")
			}
			return next()
		})
		ids := tiles(5)
		for _, id := range ids {
			w.play(id, 1)
		}
		cfg := checkpoint.Config{Concurrency: 2, RetryMax: 5 * time.Second}.With(
			checkpoint.Tuning{Timeout: 3 * time.Second})
		stop1 := w.run(w.checkpointer(ids, cfg))
		stop2 := w.run(w.checkpointer(ids, cfg))

		stored := map[fence.TileID]fence.Position{}
		for range 300 {
			id := ids[rng.n(len(ids))]
			if rng.n(10) == 0 {
				w.promote(id)
			}
			w.play(id, 1+rng.n(5))
			sleep(time.Duration(rng.n(2000)) * time.Millisecond)
			for _, id := range ids {
				now := w.stored(id)
				require.True(t, now == stored[id] || checkpoint.Supersedes(now, stored[id]), "from %s back to %s",
					stored[id], now)
				stored[id] = now
			}
		}
		w.store.set(nil)
		sleep(time.Minute)
		for _, id := range ids {
			require.Equal(t, w.owners[id].at, w.stored(id))
			require.Equal(t, w.owners[id].at.Seq, w.marked(id).Seq)
		}
		stop1()
		stop2()
		require.NotEmpty(t, w.failed)
		require.Empty(t, w.skipped)
	})
}

// TestLaggingCheckpointer runs a Checkpointer whose view of the tiles is old, by seconds or by whole epochs, as
// after a failover to a replica that lags, next to one with the true view. What is stored never regresses,
// is never a mixture, and is what the true view shows in the end; the old view truncates no journal past it.
func TestLaggingCheckpointer(t *testing.T) {
	source := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		rng := lockedRand{rng: rand.New(rand.NewPCG(source, 0))}
		w := newWorld(t)
		j := w.journal()
		w.store.set(func(_ context.Context, _ fence.TileID, next func() error) error {
			time.Sleep(time.Duration(rng.n(2000)) * time.Millisecond)
			return next()
		})
		ids := tiles(3)
		old := past{states: map[fence.TileID][]fence.Snapshot{}}
		for _, id := range ids {
			old.add(id, w.play(id, 1))
		}
		behind, err := checkpoint.New(oldLog{Log: w.log, past: &old, rng: &rng}, w.store, j, ids,
			&checkpoint.Config{Cadence: time.Second, Hooks: w.hooks()})
		require.NoError(t, err)
		stop1, stop2 := w.run(behind), w.run(w.journaled(j, ids, nil))

		stored := map[fence.TileID]fence.Position{}
		for range 300 {
			id := ids[rng.n(len(ids))]
			if rng.n(8) == 0 {
				w.promote(id)
			}
			j.write(id, 1+rng.n(4))
			old.add(id, w.play(id, 0))
			sleep(time.Duration(rng.n(3000)) * time.Millisecond)
			for _, id := range ids {
				got, found, err := w.store.Store.Get(t.Context(), id)
				require.NoError(t, err)
				if !found {
					continue
				}
				require.True(t, old.has(id, got), "what is stored was never a snapshot")
				require.True(t, got.Position == stored[id] ||
					checkpoint.Supersedes(got.Position, stored[id]), "from %s back to %s", stored[id], got.Position)
				stored[id] = got.Position
			}
		}
		sleep(time.Minute)
		for _, id := range ids {
			require.Equal(t, w.owners[id].at, w.stored(id))
			n, _ := j.left(id)
			require.Zero(t, n)
		}
		stop1()
		stop2()
		for _, i := range w.skipped {
			require.ErrorIs(t, i.Err, fence.ErrStale, "a lower epoch than it has seen is all that may be wrong")
		}
		require.NotEmpty(t, w.skipped)
		require.Empty(t, w.failed)
	})
}

// past is every snapshot a tile has had.
type past struct {
	mu     sync.Mutex
	states map[fence.TileID][]fence.Snapshot
}

func (p *past) add(id fence.TileID, s fence.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states[id] = append(p.states[id], s)
}

func (p *past) has(id fence.TileID, s fence.Snapshot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range p.states[id] {
		if known.Position == s.Position {
			return known.Sum == s.Sum && fence.Checksum(s.Blob) == s.Sum
		}
	}
	return false
}

// oldLog shows a tile as it was at one of its last snapshots, another one each time.
type oldLog struct {
	stream.Log
	past *past
	rng  *lockedRand
}

func (l oldLog) pick(id fence.TileID) fence.Snapshot {
	l.past.mu.Lock()
	defer l.past.mu.Unlock()
	states := l.past.states[id]
	return states[len(states)-1-l.rng.n(min(len(states), 6))]
}

// Read implements stream.Log.
func (l oldLog) Read(_ context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	chunks := make([]stream.Chunk, len(cursors))
	for i, c := range cursors {
		at := l.pick(c.Tile).Position
		chunks[i] = stream.Chunk{Tile: c.Tile, Owner: fence.Owner{Tile: c.Tile, Epoch: at.Epoch, Position: at}}
	}
	return chunks, nil
}

// Last implements stream.Log.
func (l oldLog) Last(_ context.Context, id fence.TileID) (fence.Position, error) {
	return l.pick(id).Position, nil
}

// Snapshot implements stream.Log.
func (l oldLog) Snapshot(_ context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
	return l.pick(id), true, nil
}

// lockedRand is a seeded generator for several goroutines.
type lockedRand struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (r *lockedRand) n(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}
