package redisplan_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
	"github.com/tilefence/tilefence/tile/tilehost"
)

var noLog = slog.New(slog.DiscardHandler)

// start runs parts until the function is called.
func start(parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() { _ = part(ctx) })
	}
	return sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
}

// fleet is the rules of a tile whose ships ask for plans while asking is set, and which commits an event in each tick.
type fleet struct {
	id     fence.TileID
	desk   *plan.Desk
	ships  []string
	asking *atomic.Bool
}

func (f *fleet) Restore([]byte) error             { return nil }
func (f *fleet) Apply(fence.Tick, [][]byte) error { return nil }
func (f *fleet) Snapshot() ([]byte, error)        { return nil, nil }

func (f *fleet) Resolve(_ fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	if f.asking.Load() {
		for _, ship := range f.ships {
			_, _ = f.desk.Ask(plan.Request{Tile: f.id, Entity: ship, Tier: plan.Background})
		}
	}
	outcomes := make([]stream.Outcome, len(intents))
	for i := range outcomes {
		outcomes[i] = stream.Applied
	}
	return [][]byte{make([]byte, 700)}, outcomes
}

const (
	benchTiles  = 20
	benchShips  = 50 // a tile: 1,000 in all
	benchTick   = 50 * time.Millisecond
	benchWindow = 12 * time.Second
)

// BenchmarkTick: 20 tiles at 20 Hz commit 700 bytes a tick to the cluster that has the plans, too. The same ticks
// with nothing to decide, with as many intents as plans that end, and with 1,000 plans in flight, by turns; a worker
// process makes the calls. x-p99 is of plans over nothing, intents-x-p99 of intents over nothing, x-intents-p99 of
// plans over intents: a plan that is taken up is an intent of its tick, so that is what having plans costs. calm-x-p99
// is of every other turn with nothing over the rest: what the machine makes of the same ticks.
func BenchmarkTick(b *testing.B) {
	b.Run("calls=5s-30s", func(b *testing.B) { benchmarkTick(b, "5s-30s", 17500*time.Millisecond, 10*time.Second) })
	b.Run("calls=1s-5s", func(b *testing.B) { benchmarkTick(b, "1s-5s", 3*time.Second, time.Second) })
}

// benchmarkTick measures beside calls that take so long, and on average so long. Steady is how long it takes until they
// end evenly.
func benchmarkTick(b *testing.B, takes string, average, steady time.Duration) {
	addrs := stacktest.Redis(b)
	client := newClient(b, addrs)
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(b, err)
	require.NoError(b, store.Load(b.Context()))
	s := open(b, addrs)
	between, calm, again, intents, loaded := newTicks(), newTicks(), newTicks(), newTicks(), newTicks()
	var now atomic.Pointer[ticks] // which of them is recorded
	now.Store(between)
	asking := &atomic.Bool{}
	var host *tilehost.Host
	d, err := plan.NewDesk(s, func(ctx context.Context, in tile.Intent) (tile.Result, error) {
		return host.Submit(ctx, in)
	}, noLog)
	require.NoError(b, err)
	hooks := d.Hooks(tile.Hooks{Ticked: func(i tile.TickInfo) {
		now.Load().took.Record(i.Took)
		now.Load().late.Record(i.Late)
	}})
	var ships []string
	for i := range benchShips {
		ships = append(ships, fmt.Sprint("ship", i))
	}
	host, err = tilehost.New("bench:1", tile.Seams{Authority: memfence.NewAuthority(), Store: store,
		Log: redisstream.New(store, client)}, func(id fence.TileID) (tile.Rules, error) {
		return &fleet{id: id, desk: d, ships: ships, asking: asking}, nil
	}, &tilehost.Config{Tile: tile.Config{TickInterval: benchTick, Hooks: hooks, Logger: noLog}})
	require.NoError(b, err)
	var tiles []fence.TileID
	for range benchTiles {
		tiles = append(tiles, plantest.NewTile())
	}
	require.NoError(b, host.Own(tiles...))
	startWorker(b, s.Name(), takes, 1024, addrs)
	stop := start(d.Run, host.Run)
	defer stop()
	record := func(in *ticks, plans int, steady time.Duration) {
		b.Helper()
		waittest.Until(b, func() bool { return d.Stats().Outstanding == plans }, time.Minute, 5*time.Millisecond)
		time.Sleep(steady)
		now.Store(in)
		time.Sleep(benchWindow)
		now.Store(between)
	}
	for b.Loop() {
		turns, began := d.Stats().Turns, time.Now()
		for range 4 {
			record(calm, 0, time.Second)
			asking.Store(true)
			record(loaded, benchTiles*benchShips, steady)
			asking.Store(false)
			record(again, 0, time.Second)
			stopped := start(func(ctx context.Context) error { return sendIntents(ctx, host, tiles, average) })
			record(intents, 0, time.Second)
			stopped()
		}
		b.ReportMetric(calm.p99(), "calm-p99-ms")
		b.ReportMetric(loaded.p99(), "p99-ms")
		b.ReportMetric(loaded.p99()/calm.p99(), "x-p99")
		b.ReportMetric(intents.p99()/calm.p99(), "intents-x-p99")
		b.ReportMetric(loaded.p99()/intents.p99(), "x-intents-p99")
		b.ReportMetric(again.p99()/calm.p99(), "calm-x-p99")
		b.ReportMetric(loaded.late.Latency().P99/calm.late.Latency().P99, "x-late-p99")
		b.ReportMetric(float64(d.Stats().Applied), "plans")
		b.ReportMetric(float64(d.Stats().Turns-turns)/time.Since(began).Seconds(), "turns/s")
		b.ReportMetric(0, "ns/op")
	}
}

// sendIntents sends as many intents as plans of benchShips in each tile end, if calls take so long on average, and of
// their size.
func sendIntents(ctx context.Context, host *tilehost.Host, tiles []fence.TileID, average time.Duration) error {
	var sent sync.WaitGroup
	defer sent.Wait()
	for wait.For(ctx, average/(benchTiles*benchShips)) {
		sent.Go(func() {
			_, _ = host.Submit(ctx, tile.Intent{Tile: tiles[mathrand.IntN(len(tiles))], ActionID: "plan-" + rand.Text(),
				Actor: "ship7", Body: []byte(rand.Text())})
		})
	}
	return nil
}

// ticks are those of one kind, in all turns.
type ticks struct{ took, late *figures.Histogram }

func newTicks() *ticks { return &ticks{figures.NewHistogram(), figures.NewHistogram()} }

func (t *ticks) p99() float64 { return t.took.Latency().P99 }

// BenchmarkPlayerPickup: 8 workers, a background queue that never empties, and players' requests at a rate that the
// slots kept for them can carry. From the request until its call begins.
func BenchmarkPlayerPickup(b *testing.B) {
	b.Run("calls=20ms-100ms", func(b *testing.B) {
		benchmarkPickup(b, pickup{slots: 4, least: 20 * time.Millisecond, most: 100 * time.Millisecond,
			every: 20 * time.Millisecond, steady: time.Second, window: 10 * time.Second})
	})
	b.Run("calls=5s-30s", func(b *testing.B) { // 70 of the 128 slots are busy, on average
		benchmarkPickup(b, pickup{slots: 64, least: 5 * time.Second, most: 30 * time.Second,
			every: 250 * time.Millisecond, steady: 30 * time.Second, window: 40 * time.Second})
	})
}

// pickup is a load of workers.
type pickup struct {
	slots       int           // of a worker; a quarter is kept for players
	least, most time.Duration // that a call takes
	every       time.Duration // between two requests of players
	steady      time.Duration // until calls end as evenly as they begin
	window      time.Duration // that is measured
}

func benchmarkPickup(b *testing.B, p pickup) {
	s := open(b, stacktest.Redis(b))
	asked := sync.Map{} // when, by request
	waits := figures.NewHistogram()
	planner := plan.PlannerFunc(func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
		if began, ok := asked.LoadAndDelete(r.ID); ok {
			waits.Record(time.Since(began.(time.Time)))
		}
		wait.For(ctx, p.least+mathrand.N(p.most-p.least))
		return nil, plan.Usage{}, ctx.Err()
	})
	var parts []func(context.Context) error
	for range 8 {
		w, err := plan.NewWorker(s, planner, &plan.WorkerConfig{Slots: p.slots, DrainTimeout: time.Millisecond,
			Logger: noLog})
		require.NoError(b, err)
		parts = append(parts, w.Run)
	}
	ask := func(id fence.TileID, tier plan.Tier, n int) {
		turn := plan.Turn{Tile: id, Epoch: 1}
		for i := range n {
			r := plan.Request{ID: rand.Text(), Tile: id, Entity: fmt.Sprint("ship", i), Tier: tier}
			if turn.Ask = append(turn.Ask, r); tier == plan.Player {
				asked.Store(r.ID, time.Now())
			}
		}
		r := s.Turn(b.Context(), plan.ShardOf(id, s.Shards()), []plan.Turn{turn})[0]
		require.NoError(b, r.Err)
	}
	for range 40 {
		ask(plantest.NewTile(), plan.Background, 250) // 10,000: for 20 s and more
	}
	play := func(length time.Duration) {
		for range length / p.every {
			ask(plantest.NewTile(), plan.Player, 1)
			time.Sleep(p.every)
		}
	}
	stop := start(parts...)
	defer stop()
	play(p.steady)
	for b.Loop() {
		waits.Cut()
		play(p.window)
		time.Sleep(time.Second)
	}
	l := waits.Latency()
	left := 0
	for shard := range s.Shards() {
		d, err := s.Depth(b.Context(), shard)
		require.NoError(b, err)
		left += d.Background
	}
	require.NotZero(b, left, "the queue was saturated")
	b.ReportMetric(l.P50, "p50-ms")
	b.ReportMetric(l.P99, "p99-ms")
	b.ReportMetric(float64(left), "background-left")
	b.ReportMetric(0, "ns/op")
}

// onOneNode is a store on a server that is no cluster.
func onOneNode(b *testing.B) *redisplan.Store {
	client := redis.NewClient(&redis.Options{Addr: stacktest.Views(b), ContextTimeoutEnabled: true})
	b.Cleanup(func() { _ = client.Close() })
	s, err := redisplan.New(client, &redisplan.Config{Name: storeName(b)})
	require.NoError(b, err)
	return s // a server for tests may evict, so the library is loaded by the first call
}

// BenchmarkEndToEnd: requests whose calls do nothing, on one Redis node: asked, claimed, ended with a usage event,
// and taken up by a desk. Owners' desk, worker and billing are in the process of the benchmark.
func BenchmarkEndToEnd(b *testing.B) {
	s := onOneNode(b)
	g := &counted{}
	d, err := plan.NewDesk(s, g.submit, noLog)
	require.NoError(b, err)
	w, err := plan.NewWorker(s, plan.PlannerFunc(func(context.Context, plan.Request) ([]byte, plan.Usage, error) {
		return nil, plan.Usage{Model: "m"}, nil
	}), &plan.WorkerConfig{Slots: 2048, Logger: noLog})
	require.NoError(b, err)
	biller, err := plan.NewBiller(s, g, noLog)
	require.NoError(b, err)
	stop := start(d.Run, w.Run, biller.Run)
	defer stop()
	asking, silence := context.WithCancel(b.Context())
	defer start(func(ctx context.Context) error {
		g.play(ctx, asking, d)
		return nil
	})()
	time.Sleep(time.Second)
	for b.Loop() {
		before, began, used := g.applied.Load(), time.Now(), s.ServerTime(b)
		time.Sleep(5 * time.Second)
		n := float64(g.applied.Load() - before)
		b.ReportMetric(n/time.Since(began).Seconds(), "requests/s")
		b.ReportMetric(float64((s.ServerTime(b)-used).Microseconds())/n, "redis-us/request")
		b.ReportMetric(0, "ns/op")
	}
	silence()
	waittest.Until(b, func() bool {
		return d.Stats().Outstanding == 0 && g.billed.Load() == g.applied.Load()
	}, time.Minute, 10*time.Millisecond, "each is billed once: %d of %d", g.billed.Load(), g.applied.Load())
}

// counted is tiles whose ships ask again and again.
type counted struct{ applied, billed atomic.Int64 }

func (g *counted) submit(context.Context, tile.Intent) (tile.Result, error) {
	g.applied.Add(1)
	return tile.Result{Outcome: stream.Applied}, nil
}

func (g *counted) Record(_ context.Context, events []plan.UsageEvent) error {
	g.billed.Add(int64(len(events)))
	return nil
}

// play ticks 64 tiles of 100 ships, 50 times a second until ctx ends; the ships ask while asking.
func (g *counted) play(ctx, asking context.Context, d *plan.Desk) {
	hooks := d.Hooks(tile.Hooks{})
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("ship", i)
	}
	for id := range fence.TileID(64) {
		hooks.Transition(tile.TransitionInfo{Tile: id + 1, To: tile.Serving, Epoch: 1})
	}
	for ctx.Err() == nil {
		for id := range fence.TileID(64) {
			for i := 0; i < len(names) && asking.Err() == nil; i++ {
				_, _ = d.Ask(plan.Request{Tile: id + 1, Entity: names[i], Tier: plan.Background})
			}
			hooks.Ticked(tile.TickInfo{Tile: id + 1})
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// BenchmarkWorkers: worker processes of four slots, calls of 20 ms, and more requests than they can serve.
func BenchmarkWorkers(b *testing.B) {
	addrs := stacktest.Redis(b)
	s := open(b, addrs)
	g := &counted{}
	d, err := plan.NewDesk(s, g.submit, noLog)
	require.NoError(b, err)
	stop := start(d.Run, func(ctx context.Context) error {
		g.play(ctx, ctx, d)
		return nil
	})
	defer stop()
	for b.Loop() {
		var rates [2]float64
		for i := range rates {
			startWorker(b, s.Name(), "20ms", 4, addrs).await(b, "began")
			time.Sleep(time.Second)
			before, began := g.applied.Load(), time.Now()
			time.Sleep(4 * time.Second)
			rates[i] = float64(g.applied.Load()-before) / time.Since(began).Seconds()
		}
		b.ReportMetric(rates[0], "one/s")
		b.ReportMetric(rates[1], "two/s")
		b.ReportMetric(rates[1]/rates[0], "ratio")
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkWorkerKilled: from SIGKILL of a worker process until another worker has its request again. Three at a
// time, killed at different times of their leases.
func BenchmarkWorkerKilled(b *testing.B) {
	addrs := stacktest.Redis(b)
	for b.Loop() {
		var longest atomic.Int64
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				s := open(b, addrs)
				bench, p := plantest.NewBench(b, s), startWorker(b, s.Name(), "1h", 4, addrs)
				bench.Ask(bench.PlayerRequest("ship"))
				p.await(b, "began ship")
				here(b, s)
				time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				killed := time.Now()
				_ = p.cmd.Process.Kill()
				awaitAnswer(bench, "by the other")
				took := int64(time.Since(killed))
				for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
				}
			})
		}
		all.Wait()
		b.ReportMetric(time.Duration(longest.Load()).Seconds(), "rerun-s")
		b.ReportMetric(0, "ns/op")
	}
}
