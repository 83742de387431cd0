package redisviewcache_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
)

func worldOn(t *testing.T, w fence.World) *redisviewcache.Store {
	t.Helper()
	client := redis.NewClient(redisviewcache.Options(stacktest.Views(t)))
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisviewcache.New(client, fence.World{Name: w.Name}, nil)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestWorld(t *testing.T) {
	fencetest.RunWorld(t, false, func(t *testing.T, w fence.World) fence.WorldKeeper { return worldOn(t, w) })
}

// TestWorldsViewTheirOwn: of two worlds on one server, each finds its own views.
func TestWorldsViewTheirOwn(t *testing.T) {
	name := fence.NewWorldID().String()[:12]
	a, b := worldOn(t, fence.World{Name: "a" + name}), worldOn(t, fence.World{Name: "b" + name})
	const id fence.TileID = 0x8528347bfffffff
	grant, err := a.Lock(t.Context(), id, viewcache.Version{}, time.Minute)
	require.NoError(t, err)
	require.NotZero(t, grant.Token)
	other, err := b.Lock(t.Context(), id, viewcache.Version{}, time.Minute)
	require.NoError(t, err)
	require.NotZero(t, other.Token, "the lock of one world is none of the other's")
	at := fence.Position{Epoch: 1, Seq: 1, Chain: 1}
	heard := make(chan viewcache.Version, 8)
	defer b.Listen(id, func(v viewcache.Version) { heard <- v })()
	verdict, err := a.Put(t.Context(), viewcache.Put{Tile: id, Token: grant.Token, At: at, Base: at,
		Snapshot: []byte("s"), Tail: []byte("t")})
	require.NoError(t, err)
	require.Equal(t, viewcache.Stored, verdict)
	_, found, err := a.Find(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found)
	_, found, err = b.Find(t.Context(), id)
	require.NoError(t, err)
	require.False(t, found)
	require.Empty(t, heard)
}
