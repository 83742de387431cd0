package redisfanout_test

import (
	"context"
	"os"
	"slices"
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
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
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

// BenchmarkResubscribe is of a relay that watches 10,000 tiles: the time until all of its subscriptions are in force
// again, with the commands that takes. connections: every connection is lost, and no node. node: one of three nodes is
// killed, with a third of the tiles; the time counts from when its slots have a new home, which is the cluster's own
// affair (a replica takes node timeout and election).
func BenchmarkResubscribe(b *testing.B) {
	b.Run("connections", func(b *testing.B) {
		addrs := stacktest.Fanout(b)
		client := newClient(b, addrs)
		watchMany(b, client, open(b, newClient(b, addrs), nil))
		before, rounds := onMasters(b, client, subscribeCommands), 0
		for b.Loop() {
			onMasters(b, client, func(ctx context.Context, node *redis.Client) (int64, error) {
				return node.Do(ctx, "client", "kill", "type", "pubsub").Int64()
			})
			waittest.Until(b, func() bool { return onMasters(b, client, subscribed) == manyTiles }, time.Minute, 5*ms)
			rounds++
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(rounds), "ms/restored")
		commands := onMasters(b, client, subscribeCommands) - before
		b.ReportMetric(float64(commands)/float64(rounds*manyTiles), "commands/tile")
	})
	b.Run("node", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			took = append(took, loseNode(b))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms/restored")
	})
}

const (
	manyTiles = 10_000
	ms        = time.Millisecond
)

// watchMany subscribes to 10,000 tiles and waits until the subscriptions are in force.
func watchMany(b *testing.B, client *redis.ClusterClient, f *redisfanout.Fanout) {
	b.Helper()
	seen := map[fence.TileID]bool{}
	for len(seen) < manyTiles {
		tile := anyTile()
		if seen[tile] {
			continue
		}
		seen[tile] = true
		stop, err := f.Subscribe(b.Context(), tile, func([]byte) {})
		require.NoError(b, err)
		b.Cleanup(stop)
	}
	waittest.Until(b, func() bool { return onMasters(b, client, subscribed) == manyTiles }, time.Minute, 10*ms)
}

// loseNode kills one of the nodes of a cluster of its own, and gives how long it takes from when its slots have a new
// home.
func loseNode(b *testing.B) time.Duration {
	c := startCluster(b)
	watchMany(b, newClient(b, c.stack.FanoutAddrs), open(b, newClient(b, c.stack.FanoutAddrs), nil))
	first, last := c.slotsOf(2)
	require.NoError(b, c.process(2).Signal(os.Kill))
	<-c.process(2).Exited()
	c.inherit(first, last)
	began := time.Now()
	waittest.Until(b, func() bool {
		var all int64
		for _, node := range c.nodes[:2] {
			n, err := subscribed(b.Context(), node)
			require.NoError(b, err)
			all += n
		}
		return all == manyTiles
	}, time.Minute, 5*ms)
	return time.Since(began)
}
