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
	"github.com/tilefence/tilefence/checkpoint/checkpointtest"
	"github.com/tilefence/tilefence/fence"
)

// TestRacingCheckpointers runs two Checkpointers on the same tiles over a store that is slow, fails, and
// loses answers, while the tiles play on and change owners. No checkpoint goes back, no watermark is
// ahead of its checkpoint (see watchedLog), and when the store has recovered all are up to date.
func TestRacingCheckpointers(t *testing.T) {
	seed := checkpointtest.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rng := lockedRand{rng: rand.New(rand.NewPCG(seed, 0))}
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
		cfg := &checkpoint.Config{Timeout: 3 * time.Second, Concurrency: 2, RetryMax: 5 * time.Second}
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
				require.True(t, now == stored[id] || checkpoint.Supersedes(now, stored[id]), "from %s back to %s", stored[id], now)
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
