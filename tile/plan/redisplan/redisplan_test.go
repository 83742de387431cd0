package redisplan_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if os.Getenv(envWorker) != "" {
		os.Exit(workerProcess())
	}
	os.Exit(m.Run())
}

func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// storeName is a name that no other store has.
func storeName(t testing.TB) string {
	name := stacktest.UniqueName(t)
	return name[max(0, len(name)-32):]
}

// open returns an empty store.
func open(t testing.TB, addrs []string) *redisplan.Store {
	s, err := redisplan.New(newClient(t, addrs), &redisplan.Config{Name: storeName(t)})
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context()))
	return s
}

func TestConformance(t *testing.T) {
	addrs := stacktest.Redis(t)
	plantest.Run(t, func(t *testing.T) plan.Store { return open(t, addrs) })
}
