package acl_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
	"github.com/tilefence/tilefence/stream/memstream"
)

// viewsAsRelay connects to the Redis of the views as the relay's user.
func viewsAsRelay(t *testing.T) *redis.Client {
	t.Helper()
	admin := redis.NewClient(redisviewcache.Options(stacktest.Views(t)))
	t.Cleanup(func() { _ = admin.Close() })
	text, err := os.ReadFile("../../deploy/acl/views.acl")
	require.NoError(t, err)
	words := strings.Fields(string(text))
	require.Equal(t, "tilefence-relay", words[1])
	name := words[1] + "-" + stacktest.UniqueName(t)
	require.NoError(t, admin.Do(t.Context(), append([]any{"acl", "setuser", name}, anys(words[2:])...)...).Err())
	t.Cleanup(func() { admin.Do(t.Context(), "acl", "deluser", name) })
	o := redisviewcache.Options(stacktest.Views(t))
	o.Username, o.Password = name, "CHANGE-ME-relay"
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestViewsUnderTheirUser: a relay reads, stores, waits for and drops views, and loads the functions.
func TestViewsUnderTheirUser(t *testing.T) {
	client := viewsAsRelay(t)
	store, err := redisviewcache.New(client, fence.World{}, 0)
	require.NoError(t, err)
	defer store.Close()
	mem, tile := memfence.New(), fence.TileID(rand.Uint64()>>1|1)
	world := &viewcachetest.World{Store: mem, Bytes: 100}
	log := &viewcachetest.Log{Log: memstream.New(mem)}
	heard := make(chan struct{}, 1000)
	defer store.Listen(tile, func(viewstore.Version) { heard <- struct{}{} })()
	waittest.Until(t, func() bool {
		_, err := world.Commit(t.Context(), tile)
		require.NoError(t, err)
		require.NoError(t, world.Snapshot(t.Context(), tile))
		views, err := viewcache.New(store, log, viewcachetest.Keys, nil)
		require.NoError(t, err)
		v, err := views.View(t.Context(), tile, world.Head(tile))
		require.NoError(t, err)
		require.NoError(t, world.Audit(tile, &v))
		require.Zero(t, views.Stats().Failures)
		if len(heard) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		return len(heard) > 0
	}, 20*time.Second, time.Millisecond, "may the relay subscribe to announcements?")

	g, err := store.Lock(t.Context(), tile+1, viewstore.Version{}, time.Minute)
	require.NoError(t, err)
	held, err := store.Renew(t.Context(), tile+1, g.Token, time.Minute)
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, store.Unlock(t.Context(), tile+1, g.Token))
	require.NoError(t, store.Drop(t.Context(), tile, world.Head(tile)))
	_, err = store.Usage(t.Context())
	require.NoError(t, err)
}

// TestWhatIsRefusedOnViews: a relay has no business with anything else there.
func TestWhatIsRefusedOnViews(t *testing.T) {
	client := viewsAsRelay(t)
	for _, command := range [][]any{
		{"flushall"}, {"flushdb"}, {"keys", "*"}, {"scan", "0"}, {"config", "get", "*"},
		{"config", "set", "maxmemory", "1"},
		{"acl", "list"}, {"shutdown", "nosave"}, {"function", "flush"}, {"function", "delete", "x"},
		{"eval", "return 1", "0"},
		{"script", "flush"}, {"client", "list"}, {"client", "kill", "type", "pubsub"}, {"monitor"},
		{"replicaof", "127.0.0.1", "1"}, {"info"}, {"hgetall", "{tilefence:views:1}:values"},
		{"get", "other"}, {"set", "other", "1"}, {"del", "{tile:1}:snapshot"}, {"hget", "{tile:1}:owner", "head"},
		{"hset", "{tilefence:members:bridge}", "a", "b"}, {"spublish", "{tile:1}:frames", "forged"},
		{"spublish", "{tilefence:hints:3}", "forged"}, {"ssubscribe", "{tile:1}:frames"},
		{"publish", "other", "forged"},
		{"subscribe", "other"}, {"psubscribe", "*"},
	} {
		require.ErrorContains(t, client.Do(t.Context(), command...).Err(), "NOPERM", "%v", command)
	}
	// A function has the rights of the user and no others.
	const library = "#!lua name=tilefence_acl_test\n" +
		"redis.register_function('tilefence_acl_test', function(keys) return redis.call('SET', 'other', '1') end)"
	_ = client.FunctionLoad(t.Context(), library).Err() // another run may have left it
	require.ErrorContains(t, client.FCall(t.Context(), "tilefence_acl_test", nil).Err(),
		"can't access at least one of the keys")
}
