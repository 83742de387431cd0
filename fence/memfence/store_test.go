package memfence_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/memfence"
)

func TestStore(t *testing.T) {
	t.Parallel()
	fencetest.RunStore(t, func(*testing.T) fencetest.StoreHarness {
		store := memfence.New()
		return fencetest.StoreHarness{
			Store: store,
			Entries: func(tile fence.TileID) (entries []fence.Entry) {
				store.Update(tile, func(s *memfence.State) { entries = slices.Clone(s.Entries) })
				return entries
			},
			Snapshot: func(tile fence.TileID) (snapshot fence.Snapshot, found bool) {
				store.Update(tile, func(s *memfence.State) {
					if s.Snapshot != nil {
						snapshot, found = *s.Snapshot, true
					}
				})
				return snapshot, found
			},
			DropOwner: func(tile fence.TileID) {
				store.Update(tile, func(s *memfence.State) { s.Owner = fence.Owner{} })
			},
			DropEntries: func(tile fence.TileID) {
				store.Update(tile, func(s *memfence.State) { s.Entries = nil })
			},
			TTL:       fence.DefaultTTL,
			Remaining: store.Remaining,
			Age:       store.Age,
		}
	})
}

// TestStoreExpires: an owner hash lives for its time to live after the last commit, and not longer.
func TestStoreExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memfence.NewTTL(10 * time.Second)
		c := fence.Commit{Tile: 7, Epoch: 1, Contact: "a:1", Install: true}
		_, err := store.Commit(t.Context(), c)
		require.NoError(t, err)
		refresh := fence.Commit{Tile: 7, Epoch: 1, Contact: "a:1", Prev: c.Next()}
		for range 5 {
			time.Sleep(10*time.Second - 1)
			_, err = store.Commit(t.Context(), refresh)
			require.NoError(t, err)
		}
		time.Sleep(10 * time.Second)
		_, err = store.Commit(t.Context(), refresh)
		require.ErrorIs(t, err, fence.ErrNoOwner)
		owner, err := store.Owner(t.Context(), 7)
		require.NoError(t, err)
		require.Equal(t, fence.Owner{Tile: 7}, owner)
	})
}

func TestWorld(t *testing.T) {
	t.Parallel()
	var store *memfence.Store
	fencetest.RunWorld(t, true, func(t *testing.T, w fence.World) fence.WorldKeeper {
		if store == nil || !w.ID.IsZero() { // a known ID begins a test
			store = memfence.New()
		}
		return store
	})
}
