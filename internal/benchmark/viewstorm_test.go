//go:build linux

package benchmark

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

const (
	viewTiles  = 50
	viewRelays = 4
	viewJoins  = 10_000
	viewRounds = 7 // in each of which relays and views are cold
	viewTick   = 500 * time.Millisecond
	otherTiles = 250 // tiles whose commits are watched beside
)

// viewStorm is a deployment that meets a storm of joins: four relays in this process, which owns the tiles that are
// joined, too; clients in another; and an owner of 250 other tiles of the same coordination cluster in a third.
type viewStorm struct {
	*planes
	views, wrong, outdated atomic.Int64

	world   *viewcachetest.World
	cold    *coldLog
	tiles   []fence.TileID
	cache   *redis.Client
	owner   *process
	viewers *process
	behind  *writeBehind      // nil: nothing is written behind the commits
	ready   map[string][]byte // what bare servers send, by tiles' names

	mu sync.Mutex // of behind, while tiles tick
}

func newStorm(b *testing.B) *viewStorm {
	b.Helper()
	percent := debug.SetGCPercent(400)
	b.Cleanup(func() { debug.SetGCPercent(percent) })
	s := &viewStorm{planes: newPlanes(b, devstack.Coordination, devstack.Fanout, devstack.Views)}
	s.world = &viewcachetest.World{Store: s.store, Bytes: 200}
	s.cold = newColdLog(s.log)
	all := someTiles(viewTiles + otherTiles)
	s.tiles = all[:viewTiles]
	s.cache = redis.NewClient(redisviewcache.Options(s.stack.ViewsAddr))
	b.Cleanup(func() { _ = s.cache.Close() })
	delivery := redis.NewClusterClient(redisfanout.Options(s.stack.FanoutAddrs...))
	b.Cleanup(func() { _ = delivery.Close() })
	broker, err := redisfanout.New(delivery, nil)
	require.NoError(b, err)
	for _, tile := range s.tiles {
		s.play(b, tile, 30)
		require.NoError(b, s.world.Snapshot(b.Context(), tile))
		s.play(b, tile, 30)
	}
	s.owner = s.start(b, partConfig{Role: "owner", Tiles: all[viewTiles:], Tick: viewTick, SnapshotEvery: 60,
		Payload: isolationPayload, State: isolationState})
	s.viewers = s.start(b, partConfig{Role: "viewers", Tiles: s.tiles, AtOnce: viewJoins})
	for _, tile := range s.tiles {
		go s.tick(b.Context(), broker, tile)
	}
	s.ready = s.frames(b)
	s.cold = newColdLog(s.log)      // reads for the frames do not count
	s.owner.measure(b, time.Second) // the burst of the start is over
	return s
}

func (s *viewStorm) play(tb testing.TB, tile fence.TileID, batches int) {
	tb.Helper()
	for range batches {
		_, err := s.world.Commit(tb.Context(), tile)
		require.NoError(tb, err)
	}
}

// tick commits and publishes until ctx ends, and takes snapshots.
func (s *viewStorm) tick(ctx context.Context, broker *redisfanout.Fanout, tile fence.TileID) {
	time.Sleep(rand.N(viewTick))
	for i := 1; ctx.Err() == nil; i++ {
		next := time.Now().Add(viewTick)
		if e, err := s.world.Commit(ctx, tile); err == nil {
			s.mu.Lock()
			behind := s.behind
			s.mu.Unlock()
			if behind != nil {
				behind.note(&e)
			}
			_, _ = broker.Publish(ctx, []fanout.Message{{Tile: tile, Data: e.Frame}})
		}
		if i%60 == 0 {
			_ = s.world.Snapshot(ctx, tile)
		}
		time.Sleep(time.Until(next))
	}
}

// relays starts four relays with views of their own making (nil: without), and returns their addresses.
func (s *viewStorm) relays(b *testing.B, views func() relay.Views) (addrs string, stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var all []string
	var ended sync.WaitGroup
	var servers []*httptest.Server
	for range viewRelays {
		delivery := redis.NewClusterClient(redisfanout.Options(s.stack.FanoutAddrs...))
		broker, err := redisfanout.New(delivery, nil)
		require.NoError(b, err)
		cfg := new(relay.Config)
		if views != nil {
			cfg.Views = &audited{Views: views(), s: s, last: map[fence.TileID]fence.Position{}}
		}
		r, err := relay.New(broker, s.cold, relay.Public, cfg)
		require.NoError(b, err)
		server, err := listening(b.Context(), r.Handler())
		require.NoError(b, err)
		servers, all = append(servers, server), append(all, server.Listener.Addr().String())
		ended.Go(func() {
			_ = r.Run(ctx)
			_ = delivery.Close()
		})
	}
	return strings.Join(all, ","), func() {
		cancel()
		ended.Wait()
		for _, server := range servers {
			server.Close()
		}
	}
}

// listening starts a server that listens as tilefence.RelayServer does.
func listening(ctx context.Context, handler http.Handler) (*httptest.Server, error) {
	listen := net.ListenConfig{KeepAlive: -1}
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &httptest.Server{Config: &http.Server{Handler: handler}}
	server.Listener = l
	server.Start()
	return server, nil
}

// meet sends the viewers to the relays and returns what they measured.
func (s *viewStorm) meet(b *testing.B, addrs string) counts {
	b.Helper()
	used := processorTime()
	joined := s.viewers.visit(b, addrs, func() { used = processorTime() - used })
	joined["relays-us"] = used.Microseconds()
	return joined
}

// BenchmarkViewStorm lets 10,000 clients join 50 tiles within a second through four relays that know nothing, and
// again after all relays were restarted. Rows differ in how relays come to their views. reads/version are the most
// calls that read the coordination cluster for one tile and version; again are reads of what another relay had read;
// outdated are views that lack what was committed 1.5 s before; wrong are those that are not the history, or regress.
// x-memory is the memory of the cache's keys over one copy of each view. x-commit is the p99 of other tiles' commits
// in the second of the storm over the calm before; owner and coordination nodes have half of the processors for
// themselves. The last rows let everything share them: their latencies are those of a storm on two processors, clients
// included; in the very last, relays and clients have the lowest priority, which takes the right to raise it again.
// restart- are the same figures of the storm after a restart.
// relays-us/join and clients-us/join are processor time during a storm, over its joins: of this process, with the tiles
// that are joined, and of the clients'.
//
// Before each storm is one of as many clients at bare servers, which only let them in and send what lies ready: what
// such a storm costs at least (bare-p95-ms, bare-us/join, bare-x-commit). x-over-bare is the p99 of other tiles'
// commits in the storm over that in the bare one, the median of the pairs. Latencies and commits are medians of seven
// cold storms.
func BenchmarkViewStorm(b *testing.B) {
	b.Run("no-views", func(b *testing.B) { newStorm(b).run(b, nil) })
	b.Run("ttl-30s", func(b *testing.B) {
		s := newStorm(b)
		s.run(b, func() relay.Views {
			return &plainViews{client: s.cache, log: s.cold, ttl: 30 * time.Second}
		})
	})
	b.Run("write-behind", func(b *testing.B) {
		s := newStorm(b)
		plain := &plainViews{client: s.cache, log: s.cold}
		behind := &writeBehind{plainViews: plain, every: 250 * time.Millisecond,
			views: map[fence.TileID]*viewcache.View{}, changed: map[fence.TileID]bool{}}
		s.mu.Lock()
		s.behind = behind
		s.mu.Unlock()
		go behind.run(b.Context())
		time.Sleep(2 * viewTick) // every tile has committed
		s.run(b, func() relay.Views { return plain })
	})
	b.Run("versioned", func(b *testing.B) {
		s := newStorm(b)
		s.run(b, s.versioned(b))
	})
	b.Run("versioned-shared-cores", func(b *testing.B) {
		b.Setenv("TILEFENCE_BENCH_PIN", "off")
		s := newStorm(b)
		s.run(b, s.versioned(b))
	})
	b.Run("versioned-nice", func(b *testing.B) {
		b.Setenv("TILEFENCE_BENCH_PIN", "off")
		s := newStorm(b)
		yield(b, s.viewers.cmd.Process.Pid, true)
		yield(b, os.Getpid(), true)
		b.Cleanup(func() { yield(b, os.Getpid(), false) })
		s.run(b, s.versioned(b))
	})
}

// versioned makes each relay a cache over a store of its own connections.
func (s *viewStorm) versioned(b *testing.B) func() relay.Views {
	return func() relay.Views {
		client := redis.NewClient(redisviewcache.Options(s.stack.ViewsAddr))
		store, err := redisviewcache.New(client, fence.World{}, 0)
		require.NoError(b, err)
		b.Cleanup(func() {
			store.Close()
			_ = client.Close()
		})
		views, err := viewcache.New(store, s.cold, viewcachetest.Keys, nil)
		require.NoError(b, err)
		return views
	}
}

func (s *viewStorm) run(b *testing.B, views func() relay.Views) {
	for b.Loop() {
		var cold, bare stormFigures
		memory := int64(0)
		for range viewRounds {
			addrs, stop := s.bare(b)
			bare.meet(b, s.owner, func() counts { return s.meet(b, addrs) })
			stop()
			addrs, stop = s.relays(b, views)
			if s.behind == nil { // what is written behind is there before relays are
				require.NoError(b, s.cache.FlushAll(b.Context()).Err())
			}
			cold.meet(b, s.owner, func() counts { return s.meet(b, addrs) })
			memory = max(memory, keysMemory(b, s.cache))
			stop()
		}
		reads := s.cold.figures()
		time.Sleep(2 * time.Second)
		addrs, stop := s.relays(b, views)
		restarted := s.meet(b, addrs)
		stop()
		afterwards := s.cold.figures()
		cold.report(b, &bare)
		b.ReportMetric(median([]counts{restarted}, "p99-us")/1000, "restart-p99-ms")
		b.ReportMetric(float64(reads.calls)/viewRounds/viewTiles, "reads/tile")
		b.ReportMetric(float64(reads.most), "reads/version")
		b.ReportMetric(float64(reads.again)/viewRounds, "again")
		b.ReportMetric(float64(afterwards.calls)/viewTiles, "restart-reads/tile")
		b.ReportMetric(float64(afterwards.most), "restart-reads/version")
		b.ReportMetric(float64(afterwards.again), "restart-again")
		b.ReportMetric(float64(s.wrong.Load()), "wrong")
		b.ReportMetric(float64(s.outdated.Load()), "outdated")
		b.ReportMetric(float64(memory)/1024, "memory-KiB")
		b.ReportMetric(float64(memory)/float64(s.oneCopy(b)), "x-memory")
	}
}

// median is the median of a figure over rounds.
func median(rounds []counts, name string) float64 {
	var all []int64
	for _, r := range rounds {
		all = append(all, r[name])
	}
	slices.Sort(all)
	return float64(all[len(all)/2])
}

// oneCopy is how many bytes the views of all tiles have, each once: snapshot and payloads.
func (s *viewStorm) oneCopy(b *testing.B) (n int) {
	b.Helper()
	views, err := viewcache.New(viewstore.New(), s.log, viewcachetest.Keys, nil)
	require.NoError(b, err)
	for _, tile := range s.tiles {
		v, err := views.View(b.Context(), tile, fence.Position{})
		require.NoError(b, err)
		require.NoError(b, s.world.Audit(tile, &v))
		n += len(v.Snapshot.Blob)
		for i := range v.Entries {
			n += len(v.Entries[i].Payload)
		}
	}
	return n
}

// keysMemory is what the keys of a server take, as the server has it, without its connections and functions.
func keysMemory(tb testing.TB, client *redis.Client) (n int64) {
	tb.Helper()
	keys := client.Scan(tb.Context(), 0, "*", 1000).Iterator()
	for keys.Next(tb.Context()) {
		used, err := client.MemoryUsage(tb.Context(), keys.Val(), 0).Result()
		if !errors.Is(err, redis.Nil) {
			require.NoError(tb, err)
		}
		n += used
	}
	require.NoError(tb, keys.Err())
	return n
}
