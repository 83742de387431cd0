package redisfence_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
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
