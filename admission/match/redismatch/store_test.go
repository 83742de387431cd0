package redismatch_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/matchtest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newStore(t testing.TB, client *redis.ClusterClient, cfg *redismatch.Config) *redismatch.Store {
	t.Helper()
	store, err := redismatch.New(client, cfg)
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	return store
}

func TestConformance(t *testing.T) {
	client := newClient(t, stacktest.Redis(t))
	matchtest.Run(t, func(t *testing.T) matchtest.Backend { return newStore(t, client, nil) })
}
