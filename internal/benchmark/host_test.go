//go:build linux

package benchmark

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// hostWindow is how long a host is watched while it plays.
const hostWindow = 10 * time.Second

// BenchmarkHost is one process that runs 10,000 tiles at 2 Hz on one core, one tick in twenty with an
// intent. cores is the processor time it uses, its driver included; commit-… is from forming a batch to
// its receipt; late-… is how much after its due time a tick began; missed is of all ticks; KiB/tile is
// heap and stacks of the process, the embedded store's share included, per tile.
func BenchmarkHost(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		store := memfence.New()
		playHost(b, tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)})
	})
	b.Run("redis", func(b *testing.B) {
		client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(b)...))
		b.Cleanup(func() { _ = client.Close() })
		store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
		require.NoError(b, err)
		require.NoError(b, store.Load(b.Context()))
		ids := playHost(b, tile.Seams{Authority: memfence.NewAuthority(), Store: store,
			Log: redisstream.New(store, client)})
		pipe := client.Pipeline()
		for _, id := range ids {
			k := fence.KeysOf(id)
			pipe.Unlink(b.Context(), k.Owner)
			pipe.Unlink(b.Context(), k.Stream)
			pipe.Unlink(b.Context(), k.Snapshot)
		}
		_, err = pipe.Exec(b.Context())
		require.NoError(b, err)
	})
}

// hostTiles is how many tiles BenchmarkHost runs: TILEFENCE_BENCH_TILES, or 10,000.
func hostTiles() int {
	if n, err := strconv.Atoi(os.Getenv("TILEFENCE_BENCH_TILES")); err == nil && n > 0 {
		return n
	}
	return 10_000
}

func playHost(b *testing.B, seams tile.Seams) []fence.TileID {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	base := fence.TileID(rand.Uint64()>>9 | 1)
	ids := make([]fence.TileID, hostTiles())
	for i := range ids {
		ids[i] = base + fence.TileID(i)<<8
	}
	var measured hostMeter
	debug.FreeOSMemory()
	before := footprint()
	goroutines := runtime.NumGoroutine()
	h, err := tilehost.New("10.0.0.7:7000", seams, func(fence.TileID) (tile.Rules, error) { return &tally{}, nil },
		&tilehost.Config{PromotionRate: 20_000, Promotions: 256, Tile: tile.Config{Hooks: measured.hooks()}})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	began := time.Now()
	require.NoError(b, h.Own(ids...))
	require.NoError(b, h.Await(ctx, ids...))
	started := time.Since(began)

	driving, rest := context.WithCancel(ctx)
	var driver sync.WaitGroup
	driver.Go(func() { drive(driving, h, ids) })
	time.Sleep(2 * time.Second) // every tile has ticked, the burst of the start is over
	b.ResetTimer()
	for b.Loop() {
		measured.reset()
		used, at := processorTime(), time.Now()
		time.Sleep(hostWindow)
		wall := time.Since(at)
		b.ReportMetric((processorTime()-used).Seconds()/wall.Seconds(), "cores")
		measured.report(b, wall, len(ids))
		runtime.GC()
		b.ReportMetric(float64(footprint()-before)/1024/float64(len(ids)), "KiB/tile")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(len(ids)), "goroutines/tile")
	}
	b.StopTimer()
	b.ReportMetric(started.Seconds(), "start-s")
	b.ReportMetric(0, "ns/op") // the window's length: it says nothing
	rest()
	driver.Wait()
	began = time.Now()
	stop()
	require.NoError(b, <-ended)
	b.ReportMetric(time.Since(began).Seconds(), "drain-s")
	return ids
}

// drive sends each tile an intent every tenth second on average: one tick in twenty.
func drive(ctx context.Context, h *tilehost.Host, ids []fence.TileID) {
	const every = 10 * time.Millisecond
	perTurn := float64(len(ids)) / 10 * every.Seconds()
	turn := time.NewTicker(every)
	defer turn.Stop()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for owed := 0.0; ; {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		for owed += perTurn; owed >= 1; owed-- {
			id := ids[rand.IntN(len(ids))]
			waiting.Go(func() {
				_, _ = h.Submit(ctx, tile.Intent{Tile: id, Actor: "ann", Body: make([]byte, 64)})
			})
		}
	}
}

// footprint is the memory that the Go heap and the goroutines' stacks take.
func footprint() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// hostMeter counts what the tiles of a host do.
type hostMeter struct {
	commit, late    histogram
	missed, pending atomic.Int64
}

func (m *hostMeter) hooks() tile.Hooks {
	return tile.Hooks{
		Committed: func(i tile.CommitInfo) { m.commit.add(i.Took) },
		Ticked: func(i tile.TickInfo) {
			m.late.add(i.Late)
			m.missed.Add(int64(i.Missed))
			if i.Pending {
				m.pending.Add(1)
			}
		},
	}
}

func (m *hostMeter) reset() {
	m.commit.reset()
	m.late.reset()
	m.missed.Store(0)
	m.pending.Store(0)
}

func (m *hostMeter) report(b *testing.B, wall time.Duration, tiles int) {
	ticks := float64(m.late.count())
	b.ReportMetric(ticks/wall.Seconds()/float64(tiles), "ticks/s/tile")
	b.ReportMetric(m.commit.quantile(0.5), "commit-p50-ms")
	b.ReportMetric(m.commit.quantile(0.99), "commit-p99-ms")
	b.ReportMetric(m.commit.quantile(1), "commit-max-ms")
	b.ReportMetric(m.late.quantile(0.99), "late-p99-ms")
	b.ReportMetric(m.late.quantile(1), "late-max-ms")
	b.ReportMetric(100*float64(m.missed.Load())/max(1, ticks), "missed-%")
	b.ReportMetric(float64(m.pending.Load()), "pending")
}

// histogram counts durations in buckets that are 12% wide.
type histogram [512]atomic.Int64

func (h *histogram) add(d time.Duration) {
	n := uint64(max(d, 8))
	exponent := bits.Len64(n) - 4
	h[exponent*8+int(n>>exponent)&7].Add(1)
}

func (h *histogram) reset() {
	for i := range h {
		h[i].Store(0)
	}
}

func (h *histogram) count() (n int64) {
	for i := range h {
		n += h[i].Load()
	}
	return n
}

// quantile is in milliseconds, the upper end of its bucket.
func (h *histogram) quantile(q float64) float64 {
	rank := max(1, int64(q*float64(h.count())))
	for i := range h {
		if rank -= h[i].Load(); rank <= 0 {
			return float64(uint64(i&7+9)<<(i/8)) / 1e6
		}
	}
	return 0
}

// tally is a game that counts intents.
type tally struct{ n uint64 }

// Restore implements tile.Rules.
func (t *tally) Restore(snapshot []byte) error {
	t.n = 0
	if len(snapshot) == 8 {
		t.n = binary.BigEndian.Uint64(snapshot)
	}
	return nil
}

// Resolve implements tile.Rules.
func (t *tally) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for i := range intents {
		events, outcomes = append(events, intents[i].Body), append(outcomes, stream.Applied)
	}
	return events, outcomes
}

// Apply implements tile.Rules.
func (t *tally) Apply(_ fence.Tick, events [][]byte) error {
	t.n += uint64(len(events))
	return nil
}

// Snapshot implements tile.Rules.
func (t *tally) Snapshot() ([]byte, error) { return binary.BigEndian.AppendUint64(nil, t.n), nil }
