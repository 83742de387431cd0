package redisviewcache_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if os.Getenv(envRebuilder) != "" {
		if err := rebuilderProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1) // it is meant to be killed
	}
	os.Exit(m.Run())
}

// open returns a store on client, whose servers are emptied.
func open(t testing.TB, client redis.UniversalClient, limits *viewstore.Limits) *redisviewcache.Store {
	t.Helper()
	require.NoError(t, flush(t.Context(), client))
	s, err := redisviewcache.NewWith(client, fence.World{}, limits)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// flush empties a server, or all of a cluster.
func flush(ctx context.Context, client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		})
	}
	return client.FlushAll(ctx).Err()
}

// slow is how long a server may take that is short of processors. Tests of servers that hang have their own deadlines.
const slow = 20 * time.Second

// connect connects to a server, or to a cluster if there are several addresses.
func connect(t testing.TB, addrs ...string) redis.UniversalClient {
	t.Helper()
	one := redisviewcache.Options(addrs[0])
	one.DialTimeout, one.ReadTimeout, one.WriteTimeout = slow, slow, slow
	var client redis.UniversalClient = redis.NewClient(one)
	if len(addrs) > 1 {
		all := redisviewcache.ClusterOptions(addrs...)
		all.DialTimeout, all.ReadTimeout, all.WriteTimeout = slow, slow, slow
		client = redis.NewClusterClient(all)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// onEach runs a test on a single server and on a cluster, both of its own.
func onEach(t *testing.T, run func(t *testing.T, client redis.UniversalClient)) {
	t.Parallel()
	for name, part := range map[string]devstack.Part{"Single": devstack.Views, "Cluster": devstack.Fanout} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{part}})
			addrs := stack.FanoutAddrs
			if part == devstack.Views {
				addrs = []string{stack.ViewsAddr}
			}
			run(t, connect(t, addrs...))
		})
	}
}

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, client redis.UniversalClient) {
		viewcachetest.Run(t, func(t *testing.T, limits *viewstore.Limits) viewstore.Store {
			return open(t, client, limits)
		})
	})
}

func TestCache(t *testing.T) {
	onEach(t, func(t *testing.T, client redis.UniversalClient) {
		viewcachetest.RunCache(t, false, func(t *testing.T, limits *viewstore.Limits) viewcachetest.Backend {
			return viewcachetest.Backend{Store: open(t, client, limits), Flush: func() {
				require.NoError(t, flush(context.Background(), client))
			}}
		})
	})
}

func worldOn(t *testing.T, w fence.World) *redisviewcache.Store {
	t.Helper()
	client := redis.NewClient(redisviewcache.Options(stacktest.Views(t)))
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisviewcache.New(client, fence.World{Name: w.Name}, 0)
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
	grant, err := a.Lock(t.Context(), id, viewstore.Version{}, time.Minute)
	require.NoError(t, err)
	require.NotZero(t, grant.Token)
	other, err := b.Lock(t.Context(), id, viewstore.Version{}, time.Minute)
	require.NoError(t, err)
	require.NotZero(t, other.Token, "the lock of one world is none of the other's")
	at := fence.Position{Epoch: 1, Seq: 1, Chain: 1}
	heard := make(chan viewstore.Version, 8)
	defer b.Listen(id, func(v viewstore.Version) { heard <- v })()
	verdict, err := a.Put(t.Context(), viewstore.Put{Tile: id, Token: grant.Token, At: at, Base: at,
		Snapshot: []byte("s"), Tail: []byte("t")})
	require.NoError(t, err)
	require.Equal(t, viewstore.Stored, verdict)
	_, found, err := a.Find(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found)
	_, found, err = b.Find(t.Context(), id)
	require.NoError(t, err)
	require.False(t, found)
	require.Empty(t, heard)
}
