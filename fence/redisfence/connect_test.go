package redisfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

func TestConnectRefusesAddresses(t *testing.T) {
	for name, addrs := range map[string][]string{
		"none":         {},
		"empty":        {""},
		"without port": {"10.0.0.1"},
		"with scheme":  {"10.0.0.1:6379", "redis://10.0.0.2:6379"},
		"not split":    {"10.0.0.1:6379,10.0.0.2:6379"},
		"with a space": {"10.0.0.1:6379", " 10.0.0.2:6379"},
	} {
		_, err := redisfence.Connect(t.Context(), redisfence.Options(addrs...))
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
		_, err = redisfence.New(redis.NewClusterClient(redisfence.Options(addrs...)), nil)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
}

func TestConnectNamesTheServersThatDoNotAnswer(t *testing.T) {
	_, err := redisfence.Connect(t.Context(), redisfence.Options("127.0.0.1:1", "127.0.0.2:1"))
	require.ErrorContains(t, err, "redis at 127.0.0.1:1: ")
	require.ErrorContains(t, err, "redis at 127.0.0.2:1: ")
}

func TestConnectFindsTheClusterBehindADeadNode(t *testing.T) {
	client, err := redisfence.Connect(t.Context(), redisfence.Options("127.0.0.1:1", stacktest.Redis(t)[0]))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	require.IsType(t, &redis.ClusterClient{}, client)
	require.NoError(t, client.Ping(t.Context()).Err())
}

func TestConnectToASingleServer(t *testing.T) {
	addr := stacktest.Views(t)
	client, err := redisfence.Connect(t.Context(), redisfence.Options(addr))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	require.IsType(t, &redis.Client{}, client)
	_, err = redisfence.Connect(t.Context(), redisfence.Options(addr, "127.0.0.1:1"))
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// reply is an error that a Redis server answers.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// answering has every command answered with an error.
type answering struct{ redis.Hook }

func (a answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(reply("NOPERM No permissions to access a key"))
		return cmd.Err()
	}
}
func (a answering) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLoadWithoutTheRight: a right that is missing does not come by waiting, so Load does not say that it may.
func TestLoadWithoutTheRight(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	client.AddHook(answering{})
	store, err := redisfence.New(client, &redisfence.Config{AllowNoReplicas: true,
		World: fence.World{Name: "a", ID: fence.NewWorldID()}})
	require.NoError(t, err)
	err = store.Load(t.Context())
	_, away := errors.AsType[*fence.StoreError](err)
	require.False(t, away, "%v", err)
	require.ErrorContains(t, err, "deploy/acl")
}

func TestWorld(t *testing.T) {
	t.Parallel()
	fencetest.RunWorld(t, false, func(t *testing.T, w fence.World) fence.WorldKeeper {
		store, _ := newStore(t, &redisfence.Config{World: fence.World{Name: w.Name}})
		return store
	})
}

// TestLoadRefusesAnotherWorld: a process of another deployment is refused before it can claim anything.
func TestLoadRefusesAnotherWorld(t *testing.T) {
	t.Parallel()
	w := fence.World{Name: "w" + fence.NewWorldID().String()[:12], ID: fence.NewWorldID()}
	store, client := newStore(t, &redisfence.Config{World: w})
	stranger, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile,
		World: fence.World{Name: w.Name, ID: fence.NewWorldID()}})
	require.NoError(t, err)
	require.ErrorIs(t, stranger.Load(t.Context()), fence.ErrWorld)
	require.NoError(t, store.Load(t.Context()))
	_, err = redisfence.New(client, &redisfence.Config{World: fence.World{Name: "{"}})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// TestADurableLogConfirms: where the operator vouches for a log behind the servers, their answer confirms, and no
// replica is asked for.
func TestADurableLogConfirms(t *testing.T) {
	client := plainClient(t, stacktest.Views(t))
	for _, cfg := range []redisfence.Config{
		{Persistence: redisfence.DurableLog, MinReplicas: 1},
		{Persistence: redisfence.DurableLog, AllowNoReplicas: true},
		{Persistence: redisfence.Volatile + 1}, {Persistence: -1},
	} {
		_, err := redisfence.New(client, &cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, "%+v", cfg)
	}
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.DurableLog})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	require.Empty(t, store.Check(t.Context()))
	c := founding(newTile())
	for _, c.Replicas = range []int{fence.AllReplicas, 2} {
		_, err = store.Commit(t.Context(), c)
		require.NoError(t, err)
	}
	require.NoError(t, store.Confirm(t.Context(), c.Tile, c.Next()))
	require.ErrorIs(t, store.Confirm(t.Context(), c.Tile, fence.Position{Epoch: 1, Seq: 7}), fence.ErrUnconfirmed)
	at := c.Next()
	_, err = store.Rebase(t.Context(), fence.Rebase{Tile: c.Tile, Epoch: 2, Contact: "b:1", Seq: 9, Replaces: &at,
		Replicas: fence.AllReplicas})
	require.NoError(t, err)
}
