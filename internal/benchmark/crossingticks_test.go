package benchmark

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// BenchmarkCrossingTicks is what transfers cost the ticks of a tile: 200 tiles at 2 Hz of which each moves 50 ships a
// tick, by events of 200 bytes. Of every other tile two of the ships cross to another tile. The tiles have a journal in
// a durable store (tile.WriteBehind), which answers and is frozen by turns. x-p50 and x-p99 are the time of ticks with
// transfers over that without, of the same moments, more-us-p50 the difference; frozen- is of the turns in which the
// store gives no answer. embedded shows the processor's part, which is most of such a tick.
func BenchmarkCrossingTicks(b *testing.B) {
	b.Run("embedded", func(b *testing.B) { crossingTicks(b, embeddedSeams(b)) })
	b.Run("redis", func(b *testing.B) { crossingTicks(b, redisSeams(b)) })
}

const (
	tickTiles  = 100 // of each kind
	tickMoves  = 50  // ships of each a tick
	tickShips  = 2   // of those, the ones that cross
	tickTurn   = 6 * time.Second
	tickTurns  = 4           // of each: the store answers, it does not
	tickSettle = time.Second // until what has waited is through
)

func crossingTicks(b *testing.B, seams tile.Seams) {
	for b.Loop() {
		with, without := &tickMeter{}, &tickMeter{}
		store := memcheckpoint.New()
		journal := &freezer{Journal: store}
		seams.Journal, seams.Checkpoint = journal, store.Get
		stop := playTicks(b, seams, with, without)
		time.Sleep(2 * time.Second)
		for range tickTurns {
			for _, frozen := range []bool{false, true} {
				journal.set(frozen)
				time.Sleep(tickSettle)
				with.turn(frozen)
				without.turn(frozen)
				time.Sleep(tickTurn)
				with.pause()
				without.pause()
				require.Equal(b, frozen, journal.asked.Swap(0) == 0, "appended while frozen")
			}
		}
		journal.set(false)
		stop()
		for _, frozen := range []bool{false, true} {
			name := map[bool]string{false: "", true: "frozen-"}[frozen]
			m, n := with.spans(frozen), without.spans(frozen)
			require.Greater(b, min(m.N, n.N), 1000)
			b.ReportMetric(float64(m.P50)/float64(n.P50), name+"x-p50")
			b.ReportMetric(float64(m.P99)/float64(n.P99), name+"x-p99")
			b.ReportMetric(float64(m.P50-n.P50)/float64(time.Microsecond), name+"more-us-p50")
			b.ReportMetric(float64(n.P99)/float64(time.Millisecond), name+"without-ms-p99")
		}
		b.ReportMetric(float64(with.departed.Load()), "departed")
		b.ReportMetric(0, "ns/op")
	}
}

// tickMeter collects how long the ticks of some tiles take.
type tickMeter struct {
	departed atomic.Int64

	mu        sync.Mutex
	recording *[]time.Duration // nil: none
	took      [2][]time.Duration
}

func (m *tickMeter) of(frozen bool) *[]time.Duration {
	if frozen {
		return &m.took[1]
	}
	return &m.took[0]
}

func (m *tickMeter) turn(frozen bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recording = m.of(frozen)
}

func (m *tickMeter) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recording = nil
}

func (m *tickMeter) spans(frozen bool) spans { return spansOf(*m.of(frozen)) }

func (m *tickMeter) hooks() tile.Hooks {
	return tile.Hooks{Ticked: func(i tile.TickInfo) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.recording != nil {
			*m.recording = append(*m.recording, i.Took)
		}
	}, Committed: func(i tile.CommitInfo) { m.departed.Add(int64(i.Departures)) }}
}

// playTicks runs tiles with transfers, in pairs, and as many without: by turns, each in a phase of its own.
func playTicks(b *testing.B, seams tile.Seams, with, without *tickMeter) (stop func()) {
	tiles := someTiles(2 * tickTiles)
	owners := map[fence.TileID]*tile.TileProcessor{}
	seams.Present = func(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
		return owners[p.To].Present(ctx, p)
	}
	meter := &crossingMeter{left: map[string]time.Time{}}
	for i, id := range tiles {
		ships, m := tickShips, with
		if i%2 == 1 {
			ships, m = 0, without
		}
		q := &quay{id: id, other: tiles[i^2], full: true, moves: tickMoves, meter: meter,
			sends: func(*quay) int { return ships }}
		var err error
		owners[id], err = tile.New(id, fmt.Sprintf("quay-%d:1", i), seams, q,
			&tile.Config{TickInterval: crossingTick, Durability: tile.WriteBehind, Hooks: m.hooks()})
		require.NoError(b, err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	for i, id := range tiles {
		running.Go(func() {
			time.Sleep(crossingTick * time.Duration(i) / time.Duration(len(tiles)))
			if err := owners[id].Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				b.Error(err)
			}
		})
	}
	return func() {
		meter.ending.Store(true)
		time.Sleep(4 * crossingTick) // nothing is under way at the end
		cancel()
		running.Wait()
	}
}

// freezer is a journal whose appends wait while it is frozen.
type freezer struct {
	tile.Journal
	asked atomic.Int64 // appends that were answered

	mu     sync.Mutex
	thawed chan struct{} // nil: it is not frozen
}

func (f *freezer) set(frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case frozen && f.thawed == nil:
		f.thawed = make(chan struct{})
	case !frozen && f.thawed != nil:
		close(f.thawed)
		f.thawed = nil
	}
}

func (f *freezer) Append(ctx context.Context, id fence.TileID, e fence.Entry) error {
	f.mu.Lock()
	thawed := f.thawed
	f.mu.Unlock()
	if thawed != nil {
		select {
		case <-thawed:
		case <-ctx.Done():
			return &fence.StoreError{Op: "append", Tile: id, Outcome: fence.ErrUnknownOutcome, Err: context.Cause(ctx)}
		}
	}
	f.asked.Add(1)
	return f.Journal.Append(ctx, id, e)
}

// within are the events of n ships, behind the first, that leave and arrive in the same tick.
func (q *quay) within(first, n int) (events [][]byte) {
	for _, ship := range q.ships[first:min(first+max(n, 0), len(q.ships))] {
		events = append(events, slices.Concat([]byte{'=', byte(len(ship))}, []byte(ship), quayCargo))
	}
	return events
}
