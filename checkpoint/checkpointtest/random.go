package checkpointtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// Seed returns the seed of a randomised test and logs how to run it again with the same one, which the
// environment variable TILEFENCE_SEED then sets.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("TILEFENCE_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "TILEFENCE_SEED")
	}
	t.Logf("rerun: TILEFENCE_SEED=%d go test -run '^%s$'", seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
	return seed
}

// testRacing lets writers on both handles present positions of a climbing history in any order while
// readers look on. No reader may see a checkpoint go back or a blob that does not match, and in the end
// the highest is stored.
func testRacing(t *testing.T, h Harness) {
	seed := Seed(t)
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
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
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

// watch reads until ctx is done and reports a checkpoint that goes back or cannot be read.
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
// not be below any of them in either number.
func testModel(t *testing.T, h Harness) {
	next := tile
	rapid.Check(t, func(rt *rapid.T) {
		next++
		var accepted []fence.Snapshot
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			s := text(fence.Epoch(rapid.IntRange(1, 4).Draw(rt, "epoch")),
				fence.Seq(rapid.IntRange(1, 6).Draw(rt, "seq")))
			if rapid.IntRange(0, 5).Draw(rt, "fork") == 0 {
				s.Chain++
			}
			st := h.Store
			if rapid.Bool().Draw(rt, "other") {
				st = h.Other
			}
			err := st.Put(context.Background(), next, s)
			want := modelPut(&accepted, s)
			if (err == nil) != want || (!want && !errors.Is(err, checkpoint.ErrOlder)) {
				rt.Fatalf("put %s: %v, the model says %v", s.Position, err, want)
			}
			got, found, err := st.Get(context.Background(), next)
			if err != nil || !found || got.Position != accepted[len(accepted)-1].Position {
				rt.Fatalf("get: %s, %v, %v; the model says %s", got.Position, found, err,
					accepted[len(accepted)-1].Position)
			}
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
