package memstream_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/streamtest"
)

func open(*testing.T) streamtest.Harness {
	store := memfence.New()
	log := memstream.New(store)
	return streamtest.Harness{
		Log:   log,
		Store: store,
		DropOwner: func(tile fence.TileID) {
			store.Update(tile, func(s *memfence.State) { s.Owner = fence.Owner{} })
		},
		AgeMarks: log.AgeMarks,
		DamageSnapshot: func(tile fence.TileID) {
			store.Update(tile, func(s *memfence.State) { s.Snapshot.Blob[0] ^= 1 })
		},
		Freeze: func(tile fence.TileID) (thaw func()) {
			var frozen memfence.State
			store.Update(tile, func(s *memfence.State) { frozen = clone(s) })
			marks := log.FreezeMarks(tile)
			return func() {
				store.Update(tile, func(s *memfence.State) { *s = clone(&frozen) })
				marks()
			}
		},
	}
}

func clone(s *memfence.State) memfence.State {
	c := *s
	c.Entries = slices.Clone(s.Entries)
	if s.Snapshot != nil {
		snapshot := *s.Snapshot
		c.Snapshot = &snapshot
	}
	return c
}

func TestLog(t *testing.T) {
	t.Parallel()
	streamtest.Run(t, open)
}

// TestReaders plays random readers, crashes, failovers and trims; see streamtest.Readers.
func TestReaders(t *testing.T) {
	t.Parallel()
	happened := map[string]int{}
	for _, seed := range seed.Many(t, 25) {
		h, err := streamtest.Readers(t.Context(), open(t), seed, 300)
		require.NoError(t, err)
		for what, n := range h {
			happened[what] += n
		}
	}
	t.Logf("%v", happened)
	if os.Getenv("TILEFENCE_SEED") == "" && !testing.Short() {
		for _, what := range []string{"told", "expired", "evicted", "gap", "failover"} {
			require.NotZero(t, happened[what], what)
		}
	}
}
