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
	"github.com/tilefence/tilefence/relay/viewcache"
)

// TestMemoryIsWhatIsSaid: the server's memory over what the account says, and over one copy of each view, while
// versions follow each other.
func TestMemoryIsWhatIsSaid(t *testing.T) {
	s := newScene(t)
	c, store := s.cache(&viewcache.Limits{Budget: 16 << 20})
	empty := usedMemory(t, s.client)
	tiles := make([]fence.TileID, 100)
	for i := range tiles {
		tiles[i] = s.tile + fence.TileID(i)
		s.play(tiles[i])
	}
	for range 20 {
		for _, tile := range tiles {
			require.True(t, s.view(c, tile))
			_, err := s.Commit(t.Context(), tile)
			require.NoError(t, err)
		}
	}
	u, err := store.Usage(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, u.Bytes, int64(16<<20))
	used := usedMemory(t, s.client) - empty
	t.Logf("%+v; the server has %d bytes more: %.2f of the account", u, used, float64(used)/float64(u.Bytes))
	require.Less(t, float64(used), 1.5*float64(u.Bytes))
}

// TestMemoryOfSmallViews: a server with the memory that the package advises never refuses one, however small they are.
func TestMemoryOfSmallViews(t *testing.T) {
	s := newScene(t)
	const budget = 4 << 20
	_, store := s.cache(&viewcache.Limits{Budget: budget})
	empty := usedMemory(t, s.client)
	require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(empty+budget*3/2)).Err())
	var work errgroup.Group
	for w := range 16 {
		work.Go(func() error {
			for i := range 1500 {
				verdict, err := store.Put(t.Context(), viewcache.Put{Tile: fence.TileID(1 + w + 16*i), Token: 1,
					At: fence.Position{Epoch: 1, Seq: 1, Chain: 1}, Tail: make([]byte, 20)})
				if err != nil || verdict != viewcache.Stored {
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
