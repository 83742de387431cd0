package bridge_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
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

// TestFanoutFrozen: all fan-out nodes are paused while much more is committed than a pass may hold. The bridge says
// what waits and for how long, takes no more memory, and afterwards every watcher has every batch, in order.
func TestFanoutFrozen(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Fanout}})
	logging.Disable() // the client library prints every failed connection
	defer logging.Enable()
	s := serversOf(t, stacktest.Redis(t), stack.FanoutAddrs)
	const tiles, size, passBytes = 60, 4000, 1 << 20
	ids := randomTiles(tiles, nil)
	defer s.remove(t, ids)
	watchers := make([]*watcher, tiles)
	for i, id := range ids {
		watchers[i] = &watcher{}
		stop, err := s.sub.Subscribe(t.Context(), id, watchers[i].deliver)
		require.NoError(t, err)
		defer stop()
	}
	// The subscriptions break while their nodes are frozen, and what is published before they are back is lost to
	// them: what was handed over is the bridge's to answer for.
	sent := &watchedPublisher{next: s.pub, keepNoPayload: true}
	b, err := bridge.New(s.log, sent, nil, ids, bridge.Config{}.With(bridge.Tuning{PassBytes: passBytes}))
	require.NoError(t, err)
	stop := (&rig{t: t}).start(b)

	payload, _, err := (&stream.Batch{Events: [][]byte{make([]byte, size)}}).Encode()
	require.NoError(t, err)
	heads := make([]fence.Position, tiles)
	commit := func(n int) {
		var g errgroup.Group
		for i, id := range ids {
			g.Go(func() error {
				for range n {
					r, err := s.store.Commit(t.Context(), fence.Commit{
						Tile: id, Epoch: 1, Contact: "owner", Prev: heads[i], Tick: fence.Tick(heads[i].Seq + 1),
						At: time.Now(), Payload: payload, Install: heads[i].Seq == 0})
					if err != nil {
						return err
					}
					heads[i] = r.Position
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
	}
	delivered := func(last fence.Seq) bool {
		return !slices.ContainsFunc(ids, func(id fence.TileID) bool {
			seqs := sent.seqs(id)
			return len(seqs) == 0 || seqs[len(seqs)-1] != last
		})
	}
	commit(10)
	waittest.Until(t, func() bool { return delivered(10) }, 30*time.Second, 10*ms)
	for _, w := range watchers {
		waittest.Until(t, func() bool { return len(w.all()) == 10 }, 30*time.Second, 10*ms)
	}

	signal := func(sig syscall.Signal) {
		for _, name := range []string{"fanout-1", "fanout-2", "fanout-3"} {
			p, ok := stack.Process(name)
			require.True(t, ok)
			require.NoError(t, p.Signal(sig))
		}
	}
	signal(devstack.Pause)
	var frozen atomic.Bool
	frozen.Store(true)
	defer func() {
		if frozen.Load() {
			signal(devstack.GoOn)
		}
	}()
	commit(10)
	waittest.Until(t, func() bool { return b.Stats().Failing == tiles }, 30*time.Second, 10*ms)
	before := heap()
	const backlog = 200
	commit(backlog) // 48 MB
	waittest.Until(t, func() bool { return b.Stats().Backlog == tiles*(10+backlog) }, 30*time.Second, 10*ms)
	lag := b.Stats().Lag
	require.Greater(t, lag, time.Second)
	most := uint64(0)
	for range 20 {
		most = max(most, heap())
		time.Sleep(100 * ms)
	}
	require.Less(t, most, before+16*passBytes, "a third of what waits")
	require.Greater(t, b.Stats().Lag, lag)
	signal(devstack.GoOn)
	frozen.Store(false)
	waittest.Until(t, func() bool { return delivered(20 + backlog) }, 60*time.Second, 10*ms)
	for _, id := range ids {
		require.Equal(t, upTo(1, 20+backlog), unique(sent.seqs(id)), "in order, none missing")
	}
	waittest.Until(t, func() bool { return b.Stats().Backlog == 0 && b.Stats().Failing == 0 }, 30*time.Second,
		10*ms)
	stop()
}

// heap is what this process holds in memory.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
