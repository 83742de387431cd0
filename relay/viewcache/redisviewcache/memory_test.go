package redisviewcache_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/viewstore"
)

// TestMemoryIsWhatIsSaid: the server's memory over what the account says, and over one copy of each view, when each
// tile has a minute's versions: one a second, each two batches of 200 bytes later, with a snapshot of about 64 KiB
// every 30.
func TestMemoryIsWhatIsSaid(t *testing.T) {
	s := newScene(t)
	s.Bytes, s.State = 200, 1<<20
	c, store := s.cache(nil)
	tiles := make([]fence.TileID, 20)
	play := func(tile fence.TileID, batches int) {
		for range batches {
			_, err := s.Commit(t.Context(), tile)
			require.NoError(t, err)
		}
	}
	for i := range tiles {
		tiles[i] = s.tile + 1 + fence.TileID(i)
		play(tiles[i], 300)
		require.NoError(t, s.Snapshot(t.Context(), tiles[i]))
	}
	empty := usedMemory(t, s.client)
	for version := range 60 {
		for _, tile := range tiles {
			play(tile, 2)
			if version%30 == 29 {
				require.NoError(t, s.Snapshot(t.Context(), tile))
			}
			require.True(t, s.view(c, tile))
		}
	}
	u, err := store.Usage(t.Context())
	require.NoError(t, err)
	require.Zero(t, u.Evicted)
	require.GreaterOrEqual(t, u.Old, 59*len(tiles), "no version's grace is over")
	one := 0
	for _, tile := range tiles {
		v, err := c.View(t.Context(), tile, fence.Position{})
		require.NoError(t, err)
		one += len(v.Snapshot.Blob)
		for i := range v.Entries {
			one += len(v.Entries[i].Payload)
		}
	}
	used := usedMemory(t, s.client) - empty
	t.Logf("%+v; the server has %d bytes more: %.2f of the account, %.1f of one copy of each view", u, used,
		float64(used)/float64(u.Bytes), float64(used)/float64(one))
	require.Less(t, float64(used), 1.5*float64(u.Bytes))
	require.InDelta(t, 13, float64(used)/float64(one), 2, "what package viewcache says")
}

// TestMemoryOfSmallViews: a server with the memory that the package advises never refuses one, however small they are.
func TestMemoryOfSmallViews(t *testing.T) {
	s := newScene(t)
	const budget = 4 << 20
	_, store := s.cache(&viewstore.Limits{Budget: budget})
	empty := usedMemory(t, s.client)
	require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(empty+budget*3/2)).Err())
	var work errgroup.Group
	for w := range 16 {
		work.Go(func() error {
			for i := range 1500 {
				verdict, err := store.Put(t.Context(), viewstore.Put{Tile: fence.TileID(1 + w + 16*i), Token: 1,
					At: fence.Position{Epoch: 1, Seq: 1, Chain: 1}, Tail: make([]byte, 20)})
				if err != nil || verdict != viewstore.Stored {
					return fmt.Errorf("%d: %v, %w", i, verdict, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
	u, err := store.Usage(t.Context())
	require.NoError(t, err)
	require.Positive(t, u.Evicted, "the budget is full")
	t.Logf("%+v; the server has %d bytes more", u, usedMemory(t, s.client)-empty)
}

func usedMemory(t testing.TB, client redis.UniversalClient) int64 {
	t.Helper()
	info, err := client.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("no used_memory")
	return 0
}
