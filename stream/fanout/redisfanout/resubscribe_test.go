package redisfanout_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// onMasters adds up what a function finds on each master.
func onMasters(t testing.TB, client *redis.ClusterClient, f func(context.Context, *redis.Client) (int64, error)) int {
	var sum atomic.Int64
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		n, err := f(ctx, node)
		sum.Add(n)
		return err
	}))
	return int(sum.Load())
}

// subscribed is how many channels have a subscriber.
func subscribed(ctx context.Context, node *redis.Client) (int64, error) {
	all, err := node.PubSubShardChannels(ctx, "{tile:*").Result()
	return int64(len(all)), err
}

// subscribeCommands is how many SSUBSCRIBE commands a node has had.
func subscribeCommands(ctx context.Context, node *redis.Client) (int64, error) {
	info, err := node.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(info, "cmdstat_ssubscribe:calls=")
	if !found {
		return 0, nil
	}
	n, _, _ := strings.Cut(rest, ",")
	return strconv.ParseInt(n, 10, 64)
}

// BenchmarkResubscribe loses every connection of a relay that watches 10,000 tiles, and measures the time until all of
// its subscriptions are in force again, with the commands that takes.
func BenchmarkResubscribe(b *testing.B) {
	const tiles = 10_000
	addrs := stacktest.Fanout(b)
	client := newClient(b, addrs)
	f := open(b, newClient(b, addrs), nil)
	seen := map[fence.TileID]bool{}
	for len(seen) < tiles {
		tile := anyTile()
		if seen[tile] {
			continue
		}
		seen[tile] = true
		stop, err := f.Subscribe(b.Context(), tile, func([]byte) {})
		require.NoError(b, err)
		b.Cleanup(stop)
	}
	restored := func() bool { return onMasters(b, client, subscribed) == tiles }
	waittest.Until(b, restored, time.Minute, 10*time.Millisecond)
	before, rounds := onMasters(b, client, subscribeCommands), 0
	for b.Loop() {
		onMasters(b, client, func(ctx context.Context, node *redis.Client) (int64, error) {
			return node.Do(ctx, "client", "kill", "type", "pubsub").Int64()
		})
		waittest.Until(b, restored, time.Minute, 5*time.Millisecond)
		rounds++
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(rounds), "ms/restored")
	b.ReportMetric(float64(onMasters(b, client, subscribeCommands)-before)/float64(rounds*tiles), "commands/tile")
}
