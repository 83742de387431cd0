//go:build linux

package benchmark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

const (
	crossingTick    = 500 * time.Millisecond
	crossingWindow  = 8 * time.Second
	crossingPayload = 200 // bytes
	crossingPhases  = 16  // pairs of tiles, whose ticks are so many different times apart
)

// BenchmarkCrossing is pairs of tiles at 2 Hz that entities of 200 bytes cross, on embedded back ends, and on Redis
// with replicas (-redis): what the wire takes comes on top. ticks-… are tick intervals from the commit of a departure
// to that of the arrival; us/each is processor time of both ends, and x-bytes what both streams have for a crossing,
// over 2.5 payloads and 64 bytes.
//
// steady: 16 pairs, 10 entities a tick each way, the ticks of each pair another time apart. full: one pair, 1,000 a
// tick each way. warp: a fleet of 1,000 leaves in one tick, and the next when it is decided.
func BenchmarkCrossing(b *testing.B) {
	for _, on := range []struct {
		name  string
		seams func(*testing.B) tile.Seams
	}{{"", embeddedSeams}, {"-redis", redisSeams}} {
		b.Run("steady"+on.name, func(b *testing.B) { cross(b, on.seams(b), crossingPhases, 10) })
		b.Run("full"+on.name, func(b *testing.B) { cross(b, on.seams(b), 1, 1000) })
		b.Run("warp"+on.name, func(b *testing.B) { warp(b, on.seams(b)) })
	}
}

func embeddedSeams(*testing.B) tile.Seams {
	store := memfence.New()
	return tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
}

// redisSeams are those of a coordination cluster with replicas: each message waits until they have what it speaks of.
func redisSeams(b *testing.B) tile.Seams {
	client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(b)...))
	b.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(b, err)
	require.NoError(b, store.Load(b.Context()))
	return tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: redisstream.New(store, client)}
}

func cross(b *testing.B, seams tile.Seams, pairs, rate int) {
	for b.Loop() {
		m := &crossingMeter{left: map[string]time.Time{}}
		stop := m.play(b, seams, pairs, func(q *quay) int { return rate })
		time.Sleep(2 * time.Second) // until every tile has ships of the other
		m.cut()
		cpu, began := processorTime(), time.Now()
		time.Sleep(crossingWindow)
		cpu, took := processorTime()-cpu, time.Since(began)
		m.report(b, cpu, took, pairs)
		stop()
	}
}

// warp has a fleet of 1,000 cross to and fro.
func warp(b *testing.B, seams tile.Seams) {
	const fleet, warps = 1000, 10
	for b.Loop() {
		m := &crossingMeter{left: map[string]time.Time{}}
		var orders atomic.Int64
		stop := m.play(b, seams, 1, func(q *quay) int {
			if len(q.ships) >= fleet && orders.CompareAndSwap(1, 0) {
				return fleet
			}
			return 0
		})
		time.Sleep(time.Second)
		m.cut()
		began := time.Now()
		for n := 1; n <= warps; n++ {
			orders.Store(1)
			waittest.Until(b, func() bool { return m.crossed() == n*fleet }, 10*time.Second, time.Millisecond)
		}
		m.report(b, 0, time.Since(began), 1)
		stop()
	}
}

// crossingMeter measures what crosses.
type crossingMeter struct {
	mu     sync.Mutex
	left   map[string]time.Time
	took   []time.Duration // from departure to arrival
	ticks  []time.Duration
	bytes  int
	ending atomic.Bool
}

func (m *crossingMeter) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took, m.ticks, m.bytes = nil, nil, 0
}

func (m *crossingMeter) crossed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.took)
}

func (m *crossingMeter) report(b *testing.B, cpu, window time.Duration, pairs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.took)
	require.Positive(b, n)
	took, ticks := spansOf(m.took), spansOf(m.ticks)
	b.ReportMetric(float64(took.P50)/float64(crossingTick), "ticks-p50")
	b.ReportMetric(float64(took.P99)/float64(crossingTick), "ticks-p99")
	b.ReportMetric(float64(took.Max)/float64(crossingTick), "ticks-max")
	b.ReportMetric(float64(ticks.P99)/float64(time.Millisecond), "tick-ms-p99")
	b.ReportMetric(float64(n)/window.Seconds()/2/float64(pairs), "each-way/s")
	b.ReportMetric(float64(m.bytes)/float64(n)/(2.5*crossingPayload+64), "x-bytes")
	if cpu > 0 {
		b.ReportMetric(float64(cpu)/float64(time.Microsecond)/float64(n), "us/each")
	}
	b.ReportMetric(0, "ns/op")
}

// play runs pairs of tiles, of which each sends so many entities a tick to the other.
func (m *crossingMeter) play(
	b *testing.B, seams tile.Seams, pairs int, sends func(*quay) int,
) (stop func()) {
	tiles := someTiles(2 * pairs)
	owners := map[fence.TileID]*tile.TileProcessor{}
	seams.Present = func(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
		return owners[p.To].Present(ctx, p)
	}
	cfg := &tile.Config{TickInterval: crossingTick, Hooks: tile.Hooks{
		Ticked: func(i tile.TickInfo) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.ticks = append(m.ticks, i.Took)
		},
		Committed: func(i tile.CommitInfo) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.bytes += i.Bytes
		}}}
	for i, id := range tiles {
		var err error
		q := &quay{id: id, other: tiles[i^1], full: i%2 == 0, sends: sends, meter: m}
		owners[id], err = tile.New(id, fmt.Sprintf("quay-%d:1", i), seams, q, cfg)
		require.NoError(b, err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	for i, id := range tiles {
		running.Go(func() {
			if i%2 == 1 { // the ticks of a pair are apart
				time.Sleep(crossingTick * time.Duration(i/2) / time.Duration(pairs))
			}
			if err := owners[id].Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				b.Error(err)
			}
		})
	}
	return func() {
		m.ending.Store(true)
		time.Sleep(3 * crossingTick) // nothing is under way at the end
		cancel()
		running.Wait()
	}
}

// quay is the rules of a tile with 4,000 ships at the beginning, or none.
type quay struct {
	id, other fence.TileID
	full      bool
	sends     func(*quay) int
	moves     int // ships a tick that leave, those included that come back at once
	meter     *crossingMeter
	ships     []string
	begun     bool
}

const quayShips = 4000

var quayCargo = make([]byte, crossingPayload)

func (q *quay) Restore([]byte) error { return nil } // no owner is replaced

func (q *quay) Snapshot() ([]byte, error) {
	return bytes.Join([][]byte{fmt.Append(nil, len(q.ships)), quayCargo}, nil), nil
}

func (q *quay) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) { return nil, nil }

func (q *quay) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	if !q.begun {
		out.Events = [][]byte{{'*'}}
		return out
	}
	n := min(q.sends(q), len(q.ships), in.Room(q.other, crossingPayload))
	if q.meter.ending.Load() {
		n = 0
	}
	out.Events = q.within(n, q.moves-n)
	for _, ship := range q.ships[:n] {
		out.Departures = append(out.Departures, stream.Departure{To: q.other, Entity: ship, Payload: quayCargo})
	}
	if n > 0 {
		out.Events = append(out.Events, fmt.Appendf(nil, "-%d", n))
	}
	for i := range in.Arrivals {
		a := &in.Arrivals[i]
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
		out.Events = append(out.Events, slices.Concat([]byte{'+', byte(len(a.Entity))}, []byte(a.Entity), a.Payload))
	}
	return out
}

func (q *quay) Apply(_ fence.Tick, events [][]byte) error {
	q.meter.mu.Lock()
	defer q.meter.mu.Unlock()
	now := time.Now()
	for _, e := range events {
		switch e[0] {
		case '*':
			q.begun = true
			for i := 0; q.full && i < quayShips; i++ {
				q.ships = append(q.ships, fmt.Sprintf("%d.%d", q.id, i))
			}
		case '-':
			var n int
			if _, err := fmt.Sscan(string(e[1:]), &n); err != nil {
				return err
			}
			for _, ship := range q.ships[:n] {
				q.meter.left[ship] = now
			}
			q.ships = q.ships[n:]
		case '+':
			ship := string(e[2 : 2+e[1]])
			q.meter.took = append(q.meter.took, now.Sub(q.meter.left[ship]))
			q.ships = append(q.ships, ship)
		}
	}
	return nil
}
