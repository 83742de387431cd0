package bridge_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// TestFanoutNodeDies: the tiles of a dead fan-out node wait for it; those of the others go on at once,
// each batch once; and when the node is back, nothing is missing.
func TestFanoutNodeDies(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Fanout}})
	logging.Disable() // the client library prints every refused connection
	defer logging.Enable()
	client := redis.NewClusterClient(redisfanout.Options(stack.FanoutAddrs...))
	t.Cleanup(func() { _ = client.Close() })
	for _, addr := range stack.FanoutAddrs {
		node := redis.NewClient(&redis.Options{Addr: addr})
		require.NoError(t, node.ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
		require.NoError(t, node.Close())
	}
	f, err := redisfanout.New(client, nil)
	require.NoError(t, err)

	const tiles = 30
	doomed := map[fence.TileID]bool{}
	ids := make([]fence.TileID, tiles)
	watchers := map[fence.TileID]*watcher{}
	for i := range ids {
		ids[i] = fence.TileID(rand.Uint64() | 1)
		node, err := client.MasterForKey(t.Context(), fence.World{}.Channel(ids[i]))
		require.NoError(t, err)
		doomed[ids[i]] = node.Options().Addr == stack.FanoutAddrs[1]
		watchers[ids[i]] = &watcher{}
		stop, err := f.Subscribe(t.Context(), ids[i], watchers[ids[i]].deliver)
		require.NoError(t, err)
		defer stop()
	}
	store := memfence.New()
	r := &rig{t: t, store: store, heads: map[fence.TileID]fence.Position{}, past: map[fence.TileID][]fence.Position{},
		log: &watchedLog{Log: memstream.New(store)}}
	sent := &watchedPublisher{next: f}
	b, err := bridge.New(r.log, sent, nil, ids, nil)
	require.NoError(t, err)
	stop := r.start(b)
	tick := func(n int) {
		for range n {
			for _, id := range ids {
				r.commit(id, 1, 1)
			}
			time.Sleep(20 * ms)
		}
	}
	tick(20)
	process, ok := stack.Process("fanout-2")
	require.True(t, ok)
	require.NoError(t, process.Signal(os.Kill))
	<-process.Exited()
	tick(20)
	for _, id := range ids {
		if !doomed[id] {
			waittest.Until(t, func() bool { return len(watchers[id].all()) == 40 }, 20*time.Second, 5*ms)
		}
	}
	require.NoError(t, process.Restart(t.Context()))
	tick(20)
	for _, id := range ids {
		waittest.Until(t, func() bool { s := sent.seqs(id); return len(s) > 0 && s[len(s)-1] == 60 },
			20*time.Second, 5*ms)
		if doomed[id] {
			require.Equal(t, upTo(1, 60), unique(sent.seqs(id)), "in order, none missing")
		} else {
			require.Equal(t, upTo(1, 60), watchers[id].all(), "not even twice")
		}
	}
	stop()
	require.Positive(t, b.Stats().PublishFailures)
	require.Zero(t, b.Stats().Dropped)
}

// unique drops what was sent again because its outcome was unknown.
func unique(seqs []fence.Seq) []fence.Seq {
	var out []fence.Seq
	for _, s := range seqs {
		if len(out) == 0 || s > out[len(out)-1] {
			out = append(out, s)
		}
	}
	return out
}
