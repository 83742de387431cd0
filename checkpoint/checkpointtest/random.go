package checkpointtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

// testRacing lets writers on both handles present positions of a climbing history in any order while
// readers look on. No reader may see a checkpoint regress or a blob that does not match, and in the end
// the highest is stored.
func testRacing(t *testing.T, h Harness) {
	source := seed.Of(t)
	const writers, writes = 4, 25
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var readers sync.WaitGroup
	var readErr error
	readers.Go(func() { readErr = watch(ctx, h.Store) })

	var top fence.Position
	var mu sync.Mutex
	var group errgroup.Group
	for w := range writers {
		rng := rand.New(rand.NewPCG(source, uint64(w)))
		st := []checkpoint.Store{h.Store, h.Other}[w%2]
		group.Go(func() error {
			for range writes {
				seq := fence.Seq(1 + rng.IntN(200))
				size := []int{20, 5000, 500 << 10}[rng.IntN(20)/9]
				s := snapshot(fence.Epoch(1+seq/50), seq, noise(size))
				err := st.Put(ctx, tile, s)
				if older := (*checkpoint.OlderError)(nil); errors.As(err, &older) {
					if !older.Covers() {
						return fmt.Errorf("one history cannot meet another: %w", err)
					}
					err = nil
				}
				if err != nil {
					return err
				}
				mu.Lock()
				if checkpoint.Supersedes(s.Position, top) {
					top = s.Position
				}
				mu.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	cancel()
	readers.Wait()
	require.NoError(t, err)
	require.NoError(t, readErr)
	got, _, err := h.Other.Get(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, top, got.Position)
}

// watch reads until ctx is done and reports a checkpoint that regresses or cannot be read.
func watch(ctx context.Context, st checkpoint.Store) error {
	var last fence.Position
	for {
		s, found, err := st.Get(ctx, tile)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the test is over
		}
		switch {
		case err != nil:
			return err
		case !found && !last.IsZero():
			return fmt.Errorf("the checkpoint at %s disappeared", last)
		case found && s.Position != last && !checkpoint.Supersedes(s.Position, last):
			return fmt.Errorf("the checkpoint went from %s back to %s", last, s.Position)
		}
		last = s.Position
	}
}

// testModel compares random calls with a model that keeps every snapshot ever accepted: a new one must
// not be below any of them in either number. The numbers are on both sides of 9, where text has another order.
func testModel(t *testing.T, h Harness) {
	next := tile
	rapid.Check(t, func(rt *rapid.T) {
		next++
		var accepted []fence.Snapshot
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			s := text(fence.Epoch(rapid.IntRange(8, 11).Draw(rt, "epoch")),
				fence.Seq(rapid.IntRange(7, 12).Draw(rt, "seq")))
			if rapid.IntRange(0, 5).Draw(rt, "fork") == 0 {
				s.Chain++
			}
			st := h.Store
			if rapid.Bool().Draw(rt, "other") {
				st = h.Other
			}
			err := st.Put(context.Background(), next, s)
			if modelPut(&accepted, s) {
				require.NoError(rt, err)
			} else {
				stored := accepted[len(accepted)-1].Position
				fork := s.Epoch == stored.Epoch && s.Seq == stored.Seq
				requireOlder(rt, err, next, s, stored, s.Epoch <= stored.Epoch && !fork)
			}
			got, found, err := st.Get(context.Background(), next)
			require.NoError(rt, err)
			require.True(rt, found)
			require.Equal(rt, accepted[len(accepted)-1], got)
		}
	})
}

func modelPut(accepted *[]fence.Snapshot, s fence.Snapshot) bool {
	for i, a := range *accepted {
		if i == len(*accepted)-1 && a.Position == s.Position {
			return true // the same again
		}
		if a.Epoch > s.Epoch || a.Seq > s.Seq || (a.Epoch == s.Epoch && a.Seq == s.Seq) {
			return false
		}
	}
	*accepted = append(*accepted, s)
	return true
}
