package redismatch_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/internal/chart"
)

// gauge samples the depth of an arena's queue, for a chart.
type gauge struct {
	*arena
	every               time.Duration
	began               time.Time
	stop                chan struct{}
	done                sync.WaitGroup
	waiting, processing [][2]float64
}

func (a *arena) gauge(every time.Duration) *gauge {
	g := &gauge{arena: a, every: every, began: time.Now(), stop: make(chan struct{})}
	g.look()
	g.done.Go(func() {
		for {
			select {
			case <-g.stop:
				return
			case <-time.After(g.every):
				g.look()
			}
		}
	})
	return g
}

func (g *gauge) look() {
	d, err := g.lobby.Depth(g.Context(), g.queue.Name)
	if err != nil {
		return // the sample is missing
	}
	at := time.Since(g.began).Seconds()
	g.waiting = extend(g.waiting, at, float64(d.Waiting))
	g.processing = extend(g.processing, at, float64(d.Claimed+d.Matched))
}

// extend adds a point to a curve, and leaves out those within a straight line.
func extend(points [][2]float64, at, v float64) [][2]float64 {
	if n := len(points); n > 1 && points[n-1][1] == v && points[n-2][1] == v {
		points = points[:n-1]
	}
	return append(points, [2]float64{math.Round(at*1e4) / 1e4, v})
}

// series ends the sampling, a little after what it was for.
func (g *gauge) series(name string, marks map[string]float64) *chart.Series {
	time.Sleep(2 * g.every)
	close(g.stop)
	g.done.Wait()
	g.look()
	return &chart.Series{Name: name, X: "seconds", Y: "tickets", Marks: marks,
		Curves: []chart.Curve{{Name: "waiting", Points: g.waiting}, {Name: "claimed or matched", Points: g.processing}}}
}

// empty waits until at most a few outliers wait and nobody holds a ticket.
func (g *gauge) empty(within time.Duration) (d match.Depth) {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(g.every) {
		var err error
		if d, err = g.lobby.Depth(g.Context(), g.queue.Name); err == nil && d.Waiting+d.Claimed+d.Matched <= outliers {
			break
		}
	}
	return d
}

// outliers may wait until their window has grown.
const outliers = 20

// BenchmarkDepth samples the depth of a queue for charts: while 3 workers drain 10,000 tickets; and while 2 drain 4,000
// when a third has died with 500 of them claimed, with a lease of 5 s and a supervisor every 5 s.
func BenchmarkDepth(b *testing.B) {
	b.Run("drain", func(b *testing.B) {
		for b.Loop() {
			a := newArena(b, match.Batch{}, 10_000)
			a.enqueue(10_000)
			g := a.gauge(10 * time.Millisecond)
			stop := a.work(3, match.WorkerConfig{})
			g.empty(30 * time.Second)
			s := g.series("drain", nil)
			stop()
			d, err := a.lobby.Depth(b.Context(), a.queue.Name)
			require.NoError(b, err)
			b.ReportMetric(float64(d.Claimed+d.Matched+d.Pending), "processing-left")
			b.ReportMetric(float64(d.Waiting), "waiting-left")
			b.Log(s.Line())
		}
	})
	b.Run("kill", func(b *testing.B) {
		for b.Loop() {
			a := newArena(b, match.Batch{}, 10_000)
			a.enqueue(4000)
			g := a.gauge(25 * time.Millisecond)
			held, err := a.store.Claim(b.Context(), a.queue.Name+"/0",
				match.Claim{Worker: "victim", Lease: 5 * time.Second, Limit: 500})
			require.NoError(b, err) // and never another call: it is dead
			killed := time.Since(g.began).Seconds()
			stop := a.work(2, match.WorkerConfig{Lease: 5 * time.Second})
			g.empty(30 * time.Second)
			back := time.Since(g.began).Seconds()
			s := g.series("kill", map[string]float64{"worker killed": killed})
			stop()
			d, err := a.lobby.Depth(b.Context(), a.queue.Name)
			require.NoError(b, err)
			b.ReportMetric(float64(len(held.Tickets)), "stranded")
			b.ReportMetric(back-killed, "s/recovery")
			b.ReportMetric(float64(d.Claimed+d.Matched+d.Pending), "processing-left")
			b.Log(s.Line())
		}
	})
}
