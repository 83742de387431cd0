package redisshare_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/sharetest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/share/redisshare"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if os.Getenv(envMember) != "" {
		os.Exit(memberProcess())
	}
	os.Exit(m.Run())
}

func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(redisfanout.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// age makes a list older, which is what a step of the node's clock does.
var age = redis.NewScript(`
local list = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #list, 2 do redis.call('ZADD', KEYS[1], list[i + 1] - ARGV[1], list[i]) end`)

func TestConformance(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	sharetest.Run(t, func(t *testing.T) sharetest.Backend {
		return sharetest.Backend{
			Members: redisshare.New(client, fence.World{}),
			Age: func(group string, by time.Duration) {
				err := age.Run(context.Background(), client, []string{redisshare.Key(group)}, by.Milliseconds()).Err()
				if !errors.Is(err, redis.Nil) {
					require.NoError(t, err)
				}
			},
			Lose: func(group string) {
				require.NoError(t, client.Del(context.Background(), redisshare.Key(group)).Err())
			},
		}
	})
}

// TestOneServer: a client of a single server will do, and an abandoned list goes away.
func TestOneServer(t *testing.T) {
	cluster := newClient(t, stacktest.Fanout(t))
	group := stacktest.UniqueName(t)
	node, err := cluster.MasterForKey(t.Context(), redisshare.Key(group))
	require.NoError(t, err)
	living, known, err := redisshare.New(node, fence.World{}).Beat(t.Context(), group, "a", 3*time.Second)
	require.NoError(t, err)
	require.False(t, known)
	require.Equal(t, []string{"a"}, living)
	left, err := cluster.PTTL(t.Context(), redisshare.Key(group)).Result()
	require.NoError(t, err)
	require.InDelta(t, 5*time.Minute, left, float64(time.Minute))
}

// TestStoreAway: an unreachable store is a *fence.StoreError, in time.
func TestStoreAway(t *testing.T) {
	m := redisshare.New(newClient(t, []string{"127.0.0.1:1"}), fence.World{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _, err := m.Beat(ctx, "g", "a", time.Minute)
	var store *fence.StoreError
	require.ErrorAs(t, err, &store)
	require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	require.ErrorAs(t, m.Leave(ctx, "g", "a"), &store)
}

// TestForeignKey: a key that is no list is left as it is, and every heartbeat fails.
func TestForeignKey(t *testing.T) {
	client, group := newClient(t, stacktest.Fanout(t)), stacktest.UniqueName(t)
	require.NoError(t, client.Set(t.Context(), redisshare.Key(group), "x", time.Minute).Err())
	_, _, err := redisshare.New(client, fence.World{}).Beat(t.Context(), group, "a", time.Minute)
	require.ErrorContains(t, err, "WRONGTYPE")
}

// BenchmarkBeat is one heartbeat of one of so many members.
func BenchmarkBeat(b *testing.B) {
	members := redisshare.New(newClient(b, stacktest.Fanout(b)), fence.World{})
	for _, n := range []int{4, 16, 64} {
		b.Run(fmt.Sprintf("%d members", n), func(b *testing.B) {
			group := stacktest.UniqueName(b)
			beat := func(i int) {
				_, _, err := members.Beat(b.Context(), group, fmt.Sprint("member", i), time.Minute)
				require.NoError(b, err)
			}
			for i := range n {
				beat(i)
			}
			for b.Loop() {
				beat(0)
			}
		})
	}
}

func TestWorld(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	fencetest.RunWorld(t, false, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		return redisshare.New(client, fence.World{Name: w.Name})
	})
}

// TestWorldsDivideTheirOwnTiles: the bridges of two worlds on one server are not on one list.
func TestWorldsDivideTheirOwnTiles(t *testing.T) {
	client, group := newClient(t, stacktest.Fanout(t)), stacktest.UniqueName(t)
	for _, name := range []string{"", "staging", "production"} {
		m := redisshare.New(client, fence.World{Name: name})
		living, _, err := m.Beat(t.Context(), group, "bridge-of-"+name, 3*time.Second)
		require.NoError(t, err)
		require.Equal(t, []string{"bridge-of-" + name}, living)
	}
	_, _, err := redisshare.New(client, fence.World{Name: "{"}).Beat(t.Context(), group, "a", time.Second)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
