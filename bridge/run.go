package bridge

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// lane is one kind of work that a run has done in the background, one job at a time: while a pass waits
// for a server, marks are written and failing tiles are tried.
type lane int

const (
	passLane      lane = iota // healthy tiles
	retryLane                 // tiles that failed
	resumeLane                // new tiles: where did forwarding end?
	markLane                  // watermarks of healthy tiles
	markRetryLane             // watermarks of tiles that failed in any way
	lanes
)

// run is one Run of a Bridge. Its loop alone touches its fields and the tiles; jobs get copies of what
// they need and hand back a function that books what came of them.
type run struct {
	b     *Bridge
	tiles map[fence.TileID]*tile
	order []*tile

	jobs   context.Context // of the jobs: ends only when draining takes too long
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   chan finished
	busy   [lanes]bool

	entryBytes int       // estimate of an entry's size, for Config.PassBytes
	marksFrom  time.Time // when the next watermarks may be written
}

// finished is a job that is done.
type finished struct {
	lane lane
	book func(now time.Time)
}

func newRun(b *Bridge) *run {
	jobs, cancel := context.WithCancel(context.Background())
	return &run{b: b, tiles: map[fence.TileID]*tile{}, jobs: jobs, cancel: cancel,
		done: make(chan finished, lanes), entryBytes: 4 << 10}
}

func (r *run) loop(ctx context.Context) {
	defer r.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.drain()
			return
		case <-r.b.changed:
		case f := <-r.done:
			r.finish(f)
		case <-timer.C:
		}
		if ctx.Err() != nil {
			continue // do not begin what would have to be waited for
		}
		r.sync()
		timer.Reset(max(0, time.Until(r.dispatch(time.Now()))))
	}
}

// start has job done in the background.
func (r *run) start(l lane, job func(ctx context.Context) (book func(now time.Time))) {
	r.busy[l] = true
	r.wg.Go(func() { r.done <- finished{lane: l, book: job(r.jobs)} })
}

func (r *run) finish(f finished) {
	r.busy[f.lane] = false
	f.book(time.Now())
}

// drain waits for what is under way and writes the last watermarks.
func (r *run) drain() {
	limit := time.AfterFunc(r.b.cfg.DrainTimeout, r.cancel)
	defer limit.Stop()
	r.await()
	for l, tiles := range r.unmarked() {
		r.startMarks(l, tiles)
	}
	r.await()
	r.wg.Wait()
	r.b.count(func(s *Stats) { s.Failing, s.Backlog = 0, 0 })
}

func (r *run) await() {
	for slices.Contains(r.busy[:], true) {
		r.finish(<-r.done)
	}
}

// sync takes over the tiles and hints given to the Bridge.
func (r *run) sync() {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for id := range b.woken {
		if t := r.tiles[id]; t != nil {
			t.woken = true
			t.wake(now)
		}
	}
	clear(b.woken)
	if !b.edited {
		return
	}
	b.edited = false
	for _, t := range r.order {
		t.removed = !b.wanted[t.cursor.tile]
	}
	for id := range b.wanted {
		if r.tiles[id] == nil {
			t := &tile{cursor: cursor{tile: id}, due: now, interval: b.cfg.MinPoll}
			r.tiles[id] = t
			r.order = append(r.order, t)
		}
	}
}

// dispatch starts what is due on every lane that is free, and returns when the next thing is.
func (r *run) dispatch(now time.Time) (next time.Time) {
	r.forgetRemoved()
	var queues [lanes]queue
	// A tile that is due in a moment comes along, so that tiles find into common passes.
	soon := now.Add(r.b.cfg.MinPoll / 2)
	for _, t := range r.order {
		if !t.busy && !t.removed {
			queues[t.lane()].add(t, t.due, soon)
		}
		if t.resumed && !t.marking {
			queues[t.markLane()].add(t, latest(t.markDue(&r.b.cfg), r.marksFrom), now)
		}
	}
	next = now.Add(time.Hour)
	for l := range lanes {
		q := &queues[l]
		switch {
		case r.busy[l] || q.first.IsZero():
			// Its end brings us back here; or there is nothing to wait for.
		case q.first.After(now):
			next = earliest(next, q.first)
		default:
			r.startLane(l, q.tiles, now)
		}
	}
	return next
}

// queue collects what one lane has to do.
type queue struct {
	tiles []*tile   // to be taken if any is due
	first time.Time // when the first is due; zero: none
}

func (q *queue) add(t *tile, due, until time.Time) {
	if due.IsZero() {
		due = until.Add(-time.Hour) // zero means at once here, and "none" in first
	}
	if q.first.IsZero() || due.Before(q.first) {
		q.first = due
	}
	if !due.After(until) {
		q.tiles = append(q.tiles, t)
	}
}

func (r *run) startLane(l lane, tiles []*tile, now time.Time) {
	switch l {
	case resumeLane:
		r.startResume(tiles)
	case markLane, markRetryLane:
		// Many small flushes would cost a wake-up each: let the next ones gather.
		r.marksFrom = now.Add(r.b.cfg.MarkEvery / 10)
		r.startMarks(l, tiles)
	default:
		r.startPass(l, tiles, now)
	}
}

// forgetRemoved drops the removed tiles whose last watermarks are written.
func (r *run) forgetRemoved() {
	before := len(r.order)
	r.order = slices.DeleteFunc(r.order, func(t *tile) bool {
		gone := t.removed && !t.busy && !t.marking && (!t.resumed || t.markFailures > 0 || t.marked >= t.cursor.read)
		if gone {
			delete(r.tiles, t.cursor.tile)
		}
		return gone
	})
	if len(r.order) < before {
		r.countFailing()
	}
}

// backoff is how long to wait after so many failures in a row: doubling, half to one and a half times.
func (c *Config) backoff(failures int) time.Duration {
	wait := min(c.RetryMin<<min(failures-1, 20), c.RetryMax)
	return wait/2 + rand.N(wait)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
