package redisplan_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
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

func worldOn(t *testing.T, w fence.World) *redisplan.Store {
	t.Helper()
	client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(t)...))
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisplan.New(client, &redisplan.Config{World: fence.World{Name: w.Name}})
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context()))
	return s
}

func TestWorld(t *testing.T) {
	fencetest.RunWorld(t, false, func(t *testing.T, w fence.World) fence.WorldKeeper { return worldOn(t, w) })
}

// TestWorldsPlanTheirOwn: of two worlds on one server, each claims its own requests.
func TestWorldsPlanTheirOwn(t *testing.T) {
	name := fence.NewWorldID().String()[:12]
	a, b := worldOn(t, fence.World{Name: "a" + name}), worldOn(t, fence.World{Name: "b" + name})
	const id fence.TileID = 0x8528347bfffffff
	shard := plan.ShardOf(id, a.Shards())
	r := plan.Request{ID: "r", Tile: id, Entity: "ship", Tier: plan.Background}
	for _, reply := range a.Turn(t.Context(), shard, []plan.Turn{{Tile: id, Epoch: 1, Ask: []plan.Request{r}}}) {
		require.NoError(t, reply.Err)
	}
	claim := plan.Claim{Worker: "w", Lease: time.Minute, Any: 4, Background: true, Attempts: 1}
	got, err := b.Claim(t.Context(), shard, claim)
	require.NoError(t, err)
	require.Empty(t, got.Requests)
	got, err = a.Claim(t.Context(), shard, claim)
	require.NoError(t, err)
	require.Len(t, got.Requests, 1)
	_, err = a.Usage(t.Context(), shard, "", 10)
	require.NoError(t, err)
}
