package acl_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/matchtest"
)

func matchAs(t *testing.T, client *redis.ClusterClient) *redismatch.Store {
	t.Helper()
	store, err := redismatch.New(client, nil)
	require.NoError(t, err)
	return store
}

// TestMatchmakersUser: the whole conformance suite passes under the matchmaker's user, a tile's seats are offered and
// taken under the usher's, and tools read under the viewer's.
func TestMatchmakersUser(t *testing.T) {
	coordination := withUsers(t, "coordination.acl", stacktest.Redis(t))
	store := matchAs(t, coordination.as(t, "matchmaker"))
	require.NoError(t, store.Load(t.Context()))
	t.Run("Suite", func(t *testing.T) {
		matchtest.Run(t, func(*testing.T) match.Backend { return store })
	})

	name := stacktest.UniqueName(t)
	usher := matchAs(t, coordination.as(t, "usher"))
	_, err := usher.Offer(t.Context(), name, match.Offer{Tile: 1, Epoch: 1, Contact: "a:1", Seats: 4}, time.Minute)
	require.NoError(t, err)
	orders := []match.Order{{Match: "m", Shard: name, Tickets: []match.Party{{Ticket: "a", Seats: 1},
		{Ticket: "b", Seats: 1}}}}
	_, err = store.Allocate(t.Context(), name, orders, time.Minute)
	require.NoError(t, err)
	require.NoError(t, usher.Take(t.Context(), name, "m", "a"))
	require.NoError(t, usher.Free(t.Context(), name, "m", "a"))
	require.NoError(t, usher.Withdraw(t.Context(), name, 1, 1))
	orders[0].Match = "m2"
	_, err = usher.Allocate(t.Context(), name, orders, time.Minute)
	require.Error(t, err, "a tile gives out no seats")

	shard := name + "/0"
	_, err = store.Enqueue(t.Context(), shard, match.Ticket{ID: "a", Players: []match.Player{{ID: "a"}}}, match.Entry{})
	require.NoError(t, err)
	viewer := matchAs(t, coordination.as(t, "matchviewer"))
	st, err := viewer.Status(t.Context(), shard, "a")
	require.NoError(t, err)
	require.Equal(t, match.Waiting, st.State)
	list, err := viewer.List(t.Context(), shard, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = viewer.Depth(t.Context(), shard)
	require.NoError(t, err)
	_, err = viewer.Tiles(t.Context(), name)
	require.NoError(t, err)
	shards, _, err := viewer.Names(t.Context())
	require.NoError(t, err)
	require.Contains(t, shards, shard)
}

// TestWhatMatchUsersAreRefused: what these users have no business with is NOPERM, and changes nothing.
func TestWhatMatchUsersAreRefused(t *testing.T) {
	coordination := withUsers(t, "coordination.acl", stacktest.Redis(t))
	admin := matchAs(t, coordination.admin)
	require.NoError(t, admin.Load(t.Context()))
	name := stacktest.UniqueName(t)
	shard, key := name+"/0", "{match:"+name+"/0}"
	ticket := match.Ticket{ID: "a", Players: []match.Player{{ID: "a"}}}
	_, err := admin.Enqueue(t.Context(), shard, ticket, match.Entry{MaxWait: time.Minute})
	require.NoError(t, err)

	owner := fence.KeysOf(7).Owner
	for _, actor := range []string{"matchmaker", "usher", "matchviewer"} {
		client := coordination.as(t, actor)
		for _, command := range [][]any{{"hset", owner, "epoch", "9"}, {"hget", owner, "epoch"}, {"get", "other"},
			{"set", "other", "1"}, {"del", key + ":t:a"}, {"del", key + ":rating"}, {"flushall"}, {"keys", "*"},
			{"function", "flush"}, {"function", "delete", "tilefence_match_v1"}, {"eval", "return 1", "0"},
			{"config", "get", "*"}, {"acl", "list"}, {"shutdown", "nosave"}, {"cluster", "reset"},
			{"spublish", "{tile:7}:frames", "forged"}} {
			requireRefused(t, client, actor, command)
		}
	}
	for _, actor := range []string{"usher", "matchviewer"} {
		client := coordination.as(t, actor)
		for _, command := range [][]any{{"hset", key + ":t:a", "s", "4"}, {"zadd", key + ":rating", "1", "b"},
			{"spublish", key + ":arrivals", ""}, {"function", "load", "replace",
				"#!lua name=x\nredis.register_function('x', function() end)"}} {
			requireRefused(t, client, actor, command)
		}
		store := matchAs(t, client)
		_, err := store.Claim(t.Context(), shard, match.Claim{Worker: "w", Lease: time.Minute, Limit: 1})
		require.ErrorContains(t, err, "NOPERM", actor)
		_, err = store.Cancel(t.Context(), shard, "a")
		require.ErrorContains(t, err, "NOPERM", actor)
	}
	_, err = matchAs(t, coordination.as(t, "usher")).Status(t.Context(), shard, "a")
	require.ErrorContains(t, err, "NOPERM")
	viewer := matchAs(t, coordination.as(t, "matchviewer"))
	_, err = viewer.Offer(t.Context(), name, match.Offer{Tile: 1, Epoch: 1, Contact: "a", Seats: 1}, time.Minute)
	require.ErrorContains(t, err, "NOPERM")
	// Those of tiles have nothing to do with queues.
	for _, actor := range []string{"owner", "bridge", "relay", "router", "viewer"} {
		_, err := matchAs(t, coordination.as(t, actor)).Cancel(context.WithoutCancel(t.Context()), shard, "a")
		require.ErrorContains(t, err, "NOPERM", actor)
	}
	st, err := admin.Status(t.Context(), shard, "a")
	require.NoError(t, err)
	require.Equal(t, match.Waiting, st.State)
}
