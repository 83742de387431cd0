package redisdirectory_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/directory/redisdirectory"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/directorystore"
	"github.com/tilefence/tilefence/internal/directorytest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(redisfanout.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// age makes what a record has of the node's clock older, which is what a step of that clock does.
var age = redis.NewScript(`
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i] ~= 'place' then redis.call('HSET', KEYS[1], all[i], all[i + 1] - ARGV[1]) end
end`)

func TestConformance(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	directorytest.Run(t, func(t *testing.T) directorytest.Backend {
		return directorytest.Backend{
			Store: redisdirectory.New(client, fence.World{}),
			Age: func(actor string, by time.Duration) {
				keys := []string{redisdirectory.Key(actor)}
				err := age.Run(context.Background(), client, keys, by.Milliseconds()).Err()
				if !errors.Is(err, redis.Nil) {
					require.NoError(t, err)
				}
			},
		}
	})
}

// TestOneServer: a client of a single server will do, and a record that is not written to goes away.
func TestOneServer(t *testing.T) {
	cluster, actor := newClient(t, stacktest.Fanout(t)), stacktest.UniqueName(t)
	node, err := cluster.MasterForKey(t.Context(), redisdirectory.Key(actor))
	require.NoError(t, err)
	s := redisdirectory.New(node, fence.World{})
	for _, write := range []func() error{
		func() error { _, err := s.Renew(t.Context(), "a", actor); return err },
		func() error { _, err := s.End(t.Context(), actor); return err },
		func() error { return s.Place(t.Context(), directory.Move{Actor: actor, To: 1, At: time.Now()}) },
	} {
		require.NoError(t, cluster.Del(t.Context(), redisdirectory.Key(actor)).Err())
		require.NoError(t, write())
		left, err := cluster.PTTL(t.Context(), redisdirectory.Key(actor)).Result()
		require.NoError(t, err)
		require.InDelta(t, directorystore.Keep, left, float64(time.Minute))
	}
}

// TestStoreAway: an unreachable store is a *fence.StoreError, in time.
func TestStoreAway(t *testing.T) {
	s := redisdirectory.New(newClient(t, []string{"127.0.0.1:1"}), fence.World{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Look(ctx, "a")
	var store *fence.StoreError
	require.ErrorAs(t, err, &store)
	require.ErrorAs(t, s.Listen(t.Context(), "a", func() {}, func([]byte) {}), &store)
}

func TestWorld(t *testing.T) {
	client := newClient(t, stacktest.Fanout(t))
	fencetest.RunWorld(t, false, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		return redisdirectory.New(client, fence.World{Name: w.Name}).(fence.WorldKeeper)
	})
	actor := stacktest.UniqueName(t)
	for tile, name := range []string{"", "staging", "production"} {
		s := redisdirectory.New(client, fence.World{Name: name})
		r, err := s.Look(t.Context(), actor)
		require.NoError(t, err)
		require.Zero(t, r[0].Place)
		m := directory.Move{Actor: actor, To: fence.TileID(tile + 1), At: time.Now()}
		require.NoError(t, s.Place(t.Context(), m))
	}
	_, err := redisdirectory.New(client, fence.World{Name: "{"}).Look(t.Context(), actor)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
