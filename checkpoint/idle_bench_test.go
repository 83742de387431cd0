package checkpoint_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// BenchmarkIdle is what 10,000 tiles that do nothing cost at the default cadence: one round of 10 seconds, after
// all are durable. %core is this process's share of one core.
func BenchmarkIdle(b *testing.B) {
	const idle, measured = 10_000, 10 * time.Second
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stacktest.Redis(b)})
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(b, err)
	require.NoError(b, store.Load(b.Context()))
	ids := make([]fence.TileID, idle)
	var group errgroup.Group
	group.SetLimit(64)
	blob := make([]byte, 2048)
	for i := range ids {
		ids[i] = fence.TileID(rand.Uint64()>>1 | 1)
		group.Go(func() error {
			_, err := store.Rebase(b.Context(), fence.Rebase{Tile: ids[i], Epoch: 1, Contact: "a:1", Seq: 1, Tick: 1,
				Blob: blob})
			return err
		})
	}
	require.NoError(b, group.Wait())
	persist(b, client, ids)

	durable := memcheckpoint.New()
	c, err := checkpoint.New(redisstream.New(store, client), durable, nil, ids, nil)
	require.NoError(b, err)
	b.Cleanup(func() { forget(client, ids) })
	ctx, cancel := context.WithCancel(b.Context())
	running := make(chan error, 1)
	go func() { running <- c.Run(ctx) }()
	time.Sleep(2 * cadence)
	for b.Loop() {
		before := cputime.Used()
		time.Sleep(measured)
		b.ReportMetric(100*float64(cputime.Used()-before)/float64(measured), "%core")
	}
	cancel()
	require.NoError(b, <-running)
}

// persist keeps the owner hashes from expiring, as owners' ticks would.
func persist(b *testing.B, client *redis.ClusterClient, ids []fence.TileID) {
	b.Helper()
	pipe := client.Pipeline()
	for _, id := range ids {
		pipe.Persist(b.Context(), fence.KeysOf(id).Owner)
	}
	_, err := pipe.Exec(b.Context())
	require.NoError(b, err)
}

// forget deletes the tiles, for the next user of the servers.
func forget(client *redis.ClusterClient, ids []fence.TileID) {
	pipe := client.Pipeline()
	for _, id := range ids {
		k := fence.KeysOf(id)
		pipe.Del(context.Background(), k.Owner, k.Stream, k.Snapshot, k.Marks)
	}
	_, _ = pipe.Exec(context.Background())
}
