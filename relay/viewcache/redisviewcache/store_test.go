package redisviewcache_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
	"github.com/tilefence/tilefence/relay/viewcache/viewcachetest"
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
func open(t testing.TB, client redis.UniversalClient, limits *viewcache.Limits) *redisviewcache.Store {
	t.Helper()
	switch c := client.(type) {
	case *redis.ClusterClient:
		require.NoError(t, c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		}))
	case *redis.Client:
		require.NoError(t, c.FlushAll(t.Context()).Err())
	}
	s, err := redisviewcache.New(client, limits)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// connect connects to a server, or to a cluster if there are several addresses.
func connect(t testing.TB, addrs ...string) redis.UniversalClient {
	t.Helper()
	var client redis.UniversalClient = redis.NewClient(redisviewcache.Options(addrs[0]))
	if len(addrs) > 1 {
		client = redis.NewClusterClient(redisviewcache.ClusterOptions(addrs...))
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestConformance(t *testing.T) {
	for name, part := range map[string]devstack.Part{"Single": devstack.Views, "Cluster": devstack.Fanout} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{part}})
			addrs := stack.FanoutAddrs
			if part == devstack.Views {
				addrs = []string{stack.ViewsAddr}
			}
			client := connect(t, addrs...)
			viewcachetest.Run(t, func(t *testing.T, limits *viewcache.Limits) viewcache.Store {
				return open(t, client, limits)
			})
		})
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Views}})
	client := connect(t, stack.ViewsAddr)
	viewcachetest.RunCache(t, func(t *testing.T, limits *viewcache.Limits) viewcachetest.Backend {
		return viewcachetest.Backend{Store: open(t, client, limits), Flush: func() {
			require.NoError(t, client.FlushAll(context.Background()).Err())
		}}
	})
}
