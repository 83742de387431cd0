package bridge

import (
	"context"
	"sync"
	"time"
)

// jobsOf is how many jobs a lane has under way at most. While one pass publishes, another reads.
var jobsOf = [lanes]int{passLane: 2, retryLane: 1, resumeLane: 1, markLane: 1, markRetryLane: 1}

// run is the loop of a bridge: it begins jobs when they are due, on as many lanes as are free, and books their
// results. Its goroutine alone touches the world; jobs get copies of what they need.
type run struct {
	world    *world
	inbox    *inbox
	clusters *clusters

	jobs   context.Context // of the jobs: ends only when draining takes too long
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   chan finished
	busy   [lanes]int
}

// finished is a job that is done.
type finished struct {
	lane lane
	book func(now time.Time)
}

func newRun(c *clusters, b *inbox, w *world) *run {
	jobs, cancel := context.WithCancel(context.Background())
	return &run{world: w, inbox: b, clusters: c, jobs: jobs, cancel: cancel, done: make(chan finished)}
}

// loop runs until ctx ends, and drains then.
func (r *run) loop(ctx context.Context) {
	defer r.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.drain()
			return
		case <-r.inbox.changed:
		case f := <-r.done:
			r.finish(f)
		case <-timer.C:
		}
		if ctx.Err() != nil {
			continue // do not begin what would have to be waited for
		}
		now := time.Now()
		r.world.take(r.inbox, r.busy[passLane] < jobsOf[passLane], now)
		timer.Reset(max(0, r.dispatch(now).Sub(now)))
	}
}

// dispatch starts what is due on every lane that is free, and returns when the next thing is.
func (r *run) dispatch(now time.Time) (next time.Time) {
	next = now.Add(time.Hour)
	for l := range lanes {
		for r.busy[l] < jobsOf[l] { // else its end brings us back here
			at, ok := r.world.next(l)
			if ok && !at.After(now) {
				r.start(l, r.world.due(l, now), now)
				continue
			}
			if ok {
				next = earliest(next, at)
			}
			if from := r.world.from[l]; from.After(now) { // the inbox may have kept hints until then
				next = earliest(next, from)
			}
			break
		}
	}
	r.world.totals()
	return next
}

// start begins a job for tiles.
func (r *run) start(l lane, tiles []*tile, now time.Time) {
	w, c := r.world, r.clusters
	switch l {
	case passLane, retryLane:
		p := w.beginPass(tiles, l == retryLane, now)
		r.background(l, func() { p.run(r.jobs, c) }, func(done time.Time) { w.bookPass(p, tiles, now, done) })
	case resumeLane:
		marks := w.beginResume(tiles)
		r.background(l, func() { c.readMarks(r.jobs, marks) },
			func(done time.Time) { w.bookResume(marks, tiles, done) })
	default:
		marks := w.beginMarks(l, tiles, now)
		r.background(l, func() { c.writeMarks(r.jobs, marks) },
			func(done time.Time) { w.bookMarks(marks, tiles, done) })
	}
}

// background does a job, and has the loop book it.
func (r *run) background(l lane, job func(), book func(now time.Time)) {
	r.busy[l]++
	r.wg.Go(func() {
		job()
		r.done <- finished{l, book}
	})
}

func (r *run) finish(f finished) {
	r.busy[f.lane]--
	f.book(time.Now())
}

// drain waits for what is under way and writes the last watermarks.
func (r *run) drain() {
	limit := time.AfterFunc(r.world.cfg.DrainTimeout, r.cancel)
	defer limit.Stop()
	r.await()
	for l, tiles := range r.world.unmarked() {
		r.start(l, tiles, time.Now())
	}
	r.await()
	r.wg.Wait()
	r.world.report.totals(0, 0, time.Time{})
}

func (r *run) await() {
	for r.busy != [lanes]int{} {
		r.finish(<-r.done)
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
