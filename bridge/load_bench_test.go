package bridge_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/fanout"
)

// runBridge runs a bridge for a benchmark.
func runBridge(b *testing.B, s *servers, pub fanout.Publisher, ids []fence.TileID,
	cfg *bridge.Config) (br *bridge.Bridge, stop func()) {
	br, err := bridge.New(s.log, pub, nil, ids, cfg)
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- br.Run(ctx) }()
	return br, func() {
		cancel()
		require.NoError(b, <-ended)
	}
}

// BenchmarkIdle is what 10,000 tiles without events cost: cores is the processor time of this process, which
// does nothing else. One operation is ten seconds.
func BenchmarkIdle(b *testing.B) {
	s := openServers(b)
	for _, hints := range []bool{true, false} {
		b.Run(map[bool]string{true: "hints", false: "polling"}[hints], func(b *testing.B) {
			ids := randomTiles(10_000, nil)
			defer s.remove(b, ids)
			br, stop := runBridge(b, s, s.pub, ids, nil)
			defer stop()
			br.Hints(hints)
			time.Sleep(40 * time.Second) // until they have gone quiet: the waits double up to HintedPoll
			before, used := br.Stats(), cputime.Used()
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			after := br.Stats()
			b.ReportMetric((cputime.Used()-used).Seconds()/b.Elapsed().Seconds(), "cores")
			b.ReportMetric(float64(after.Reads-before.Reads)/b.Elapsed().Seconds(), "reads/s")
			b.ReportMetric(float64(after.Marks-before.Marks)/b.Elapsed().Seconds(), "marks/s")
		})
	}
}

// BenchmarkPaced is 10,000 tiles that commit twice a second each, at phases of their own: from the answer to a
// commit to the return of the publish. One operation is ten seconds, after as many for the bridge to learn. The
// owners are another process, which says what it committed over a pipe; with hints, this is also what wakes the
// bridge. cores is the processor time of this process, the stopwatch included. On a machine that cannot carry the
// load the rate is lower.
func BenchmarkPaced(b *testing.B) {
	coord := withoutReplicas(b)
	s := serversOf(b, coord, stacktest.Fanout(b))
	for _, tiles := range []int{1000, 10_000} {
		for _, hints := range []bool{true, false} {
			name := fmt.Sprintf("%s/%d tiles", map[bool]string{true: "hints", false: "polling"}[hints], tiles)
			b.Run(name, func(b *testing.B) { paced(b, s, coord, pace{tiles: tiles, payload: 700, hints: hints}) })
		}
	}
}

// BenchmarkSaturated is the same for a thousand tiles that each commit 3.4 KB twice a second, which is a tick in which
// nearly 500 ships of a tile act: ratio is how much of what was committed was forwarded meanwhile.
func BenchmarkSaturated(b *testing.B) {
	coord := withoutReplicas(b)
	paced(b, serversOf(b, coord, stacktest.Fanout(b)), coord, pace{tiles: 1000, payload: 3400, hints: true})
}

// pace is how owners commit: twice a second on each tile.
type pace struct {
	tiles, payload int
	hints          bool
}

// withoutReplicas starts a coordination cluster of masters alone. Replicas do everything once more, and two cores
// that are to carry 20,000 commits a second, the bridge and the stopwatch have no room for them.
func withoutReplicas(b *testing.B) (masters []string) {
	stack := stacktest.Start(b, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	shards, err := redisOf(b, stack.CoordAddrs).ClusterShards(b.Context()).Result()
	require.NoError(b, err)
	for _, shard := range shards {
		for _, n := range shard.Nodes {
			addr := net.JoinHostPort(n.IP, strconv.FormatInt(n.Port, 10))
			if n.Role != "replica" {
				masters = append(masters, addr)
				continue
			}
			for _, p := range stack.Processes() {
				if p.Addr() == addr {
					require.NoError(b, p.Signal(os.Kill))
				}
			}
		}
	}
	return masters
}

func paced(b *testing.B, s *servers, coord []string, as pace) {
	ids := randomTiles(as.tiles, nil)
	defer s.remove(b, ids)
	watch := newStopwatch(s.pub, ids)
	br, stop := runBridge(b, s, watch, ids, nil)
	defer stop()
	br.Hints(as.hints)
	p := startProducer(b, production{Redis: coord, Tiles: ids, Payload: as.payload, Every: 500 * time.Millisecond},
		func(part []receipt) {
			watch.took(part)
			if as.hints {
				woken := make([]fence.TileID, len(part))
				for i, r := range part {
					woken[i] = ids[r.tile]
				}
				br.Wake(woken...)
			}
		})
	time.Sleep(10 * time.Second)
	watch.begin()
	before, used, committed, published := br.Stats(), cputime.Used(), p.committed.Load(), watch.published.Load()
	for b.Loop() {
		time.Sleep(10 * time.Second)
	}
	after, seconds := br.Stats(), b.Elapsed().Seconds()
	b.ReportMetric((cputime.Used()-used).Seconds()/seconds, "cores")
	b.ReportMetric(float64(p.committed.Load()-committed)/seconds, "commits/s")
	b.ReportMetric(float64(watch.published.Load()-published)/seconds, "batches/s")
	b.ReportMetric(float64(watch.published.Load()-published)/float64(p.committed.Load()-committed), "ratio")
	b.ReportMetric(float64(after.Reads-before.Reads)/seconds, "reads/s")
	b.ReportMetric(float64(after.Passes-before.Passes)/seconds, "passes/s")
	b.ReportMetric(0, "ns/op")
	p.stop(b)
	times := watch.end()
	require.NotEmpty(b, times)
	for name, q := range map[string]float64{"p50": .5, "p99": .99, "max": 1} {
		b.ReportMetric(float64(times[int(q*float64(len(times)-1))].Microseconds())/1000, name+"-ms")
	}
}

// begin starts taking times.
func (s *stopwatch) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = true
}

// end returns the times taken, in order.
func (s *stopwatch) end() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	slices.Sort(s.times)
	return s.times
}

// BenchmarkKeepUp is one node that owners commit to as fast as they can, with a bridge that follows to one
// fan-out node at the same time: what is committed without it and with it, what it forwards meanwhile, and how
// long it takes to work off the rest once the owners stop. One operation is five seconds.
func BenchmarkKeepUp(b *testing.B) {
	s := openServers(b)
	node, err := s.coord.MasterForKey(b.Context(), fence.KeysOf(1).Stream)
	require.NoError(b, err)
	sink, err := redisOf(b, stacktest.Fanout(b)).MasterForKey(b.Context(), fence.World{}.Channel(1))
	require.NoError(b, err)
	slots := redisOf(b, stacktest.Fanout(b))
	ids := randomTiles(500, func(id fence.TileID) bool {
		n, err1 := s.coord.MasterForKey(b.Context(), fence.KeysOf(id).Stream)
		f, err2 := slots.MasterForKey(b.Context(), fence.World{}.Channel(id))
		require.NoError(b, err1)
		require.NoError(b, err2)
		return n.Options().Addr == node.Options().Addr && f.Options().Addr == sink.Options().Addr
	})
	half := len(ids) / 2
	defer s.remove(b, ids)
	const window = 5 * time.Second
	work := production{Redis: stacktest.Redis(b), Payload: 700, Workers: half}
	work.Tiles = ids[:half]
	alone := startProducer(b, work, nil)
	time.Sleep(window / 5)
	from := alone.committed.Load()
	time.Sleep(window)
	rate := float64(alone.committed.Load()-from) / window.Seconds()
	alone.stop(b)

	watch := newStopwatch(s.pub, ids)
	br, stop := runBridge(b, s, watch, ids[half:], nil)
	defer stop()
	work.Tiles = ids[half:]
	p := startProducer(b, work, nil)
	time.Sleep(window / 5)
	before, committed, published := br.Stats(), p.committed.Load(), watch.published.Load()
	used := cputime.Used()
	for b.Loop() {
		time.Sleep(window)
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric((cputime.Used()-used).Seconds()/seconds, "cores")
	b.ReportMetric(rate, "commits-alone/s")
	b.ReportMetric(float64(p.committed.Load()-committed)/seconds, "commits/s")
	b.ReportMetric(float64(watch.published.Load()-published)/seconds, "batches/s")
	b.ReportMetric(float64(watch.published.Load()-published)/float64(p.committed.Load()-committed), "ratio")
	b.ReportMetric(float64(br.Stats().Passes-before.Passes)/seconds, "passes/s")
	b.ReportMetric(0, "ns/op")
	p.stop(b)
	began := time.Now()
	for watch.published.Load() < p.committed.Load() && time.Since(began) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "drain-ms")
}

func redisOf(b *testing.B, addrs []string) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	b.Cleanup(func() { _ = c.Close() })
	return c
}
