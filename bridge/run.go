package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// lane is one kind of work that a run has done in the background, so many jobs at a time: while a pass waits
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

// jobsOf is how many jobs a lane has under way at most. While one pass publishes, another reads.
var jobsOf = [lanes]int{passLane: 2, retryLane: 1, resumeLane: 1, markLane: 1, markRetryLane: 1}

// tilesAJob is how many tiles one job takes at most. More would make those that have entries wait for the
// many that have none.
var tilesAJob = [lanes]int{passLane: 2048, retryLane: 2048, resumeLane: 4096, markLane: 4096, markRetryLane: 4096}

// run is one Run of a Bridge. Its loop alone touches its fields and the tiles; jobs get copies of what
// they need and hand back a function that books what came of them.
type run struct {
	b     *Bridge
	began time.Time
	tiles map[fence.TileID]*tile
	woken []*want // emptied; swapped with the bridge's

	jobs   context.Context // of the jobs: ends only when draining takes too long
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   chan finished
	busy   [lanes]int

	agenda [lanes]schedule  // what each lane has to do; a tile's work and its marks are one date each
	from   [lanes]time.Time // before which no next job begins
	behind schedule         // tiles with entries that wait, by the oldest's commit time

	groups     [fanout.HintGroups]hintGroup
	paces      [paces]int // tiles by pace
	failing    int
	backlog    int
	entryBytes int     // estimate of an entry's size, for Config.PassBytes
	passes     []*pass // to be used again
}

// finished is a job that is done.
type finished struct {
	lane lane
	book func(now time.Time)
}

func newRun(b *Bridge) *run {
	jobs, cancel := context.WithCancel(context.Background())
	most := 0
	for _, n := range jobsOf {
		most += n
	}
	return &run{b: b, began: time.Now(), tiles: map[fence.TileID]*tile{}, jobs: jobs, cancel: cancel,
		done: make(chan finished, most), entryBytes: 4 << 10}
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
		now := time.Now()
		r.sync(now)
		timer.Reset(max(0, r.dispatch(now).Sub(now)))
	}
}

// start has job done in the background.
func (r *run) start(l lane, job func(ctx context.Context) (book func(now time.Time))) {
	r.busy[l]++
	r.wg.Go(func() { r.done <- finished{lane: l, book: job(r.jobs)} })
}

func (r *run) finish(f finished) {
	r.busy[f.lane]--
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
	r.failing, r.backlog, r.behind, r.paces = 0, 0, schedule{}, [paces]int{}
	r.tell()
}

func (r *run) await() {
	for r.busy != [lanes]int{} {
		r.finish(<-r.done)
	}
}

// sync takes over the tiles and hints given to the Bridge.
func (r *run) sync(now time.Time) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turned {
		b.turned = false
		r.takeHints(now)
	}
	if b.edited {
		b.edited = false
		r.takeTiles(now)
	}
	if len(b.woken) == 0 || r.busy[passLane] == jobsOf[passLane] || now.Before(r.from[passLane]) {
		return // nothing could be begun; the bridge goes on collecting without waking this loop
	}
	r.woken, b.woken = b.woken, r.woken[:0]
	for _, w := range r.woken {
		w.woken = false
		if w.tile != nil {
			r.wake(w.tile, now)
		}
	}
	clear(r.woken)
}

// takeTiles takes over which tiles are wanted. b.mu is held.
func (r *run) takeTiles(now time.Time) {
	for id, t := range r.tiles {
		if gone := r.b.wanted[id] == nil; gone != t.removed {
			t.removed = gone
			if !gone {
				r.wake(t, now) // it may have missed hints
			}
			r.plan(t)
		}
	}
	for id, w := range r.b.wanted {
		t := r.tiles[id]
		if t == nil {
			t = newTile(id, now, r.b.cfg.MinPoll)
			r.tiles[id] = t
			r.paces[t.pace]++
			r.plan(t)
		}
		w.tile = t
	}
}

// plan enters a tile where its state says: to be called after every change of that.
func (r *run) plan(t *tile) {
	if t.forgotten {
		return // a hint was under way
	}
	if t.busy || t.removed {
		t.work.clear()
	} else {
		t.work.set(&r.agenda[t.lane()], t.due)
	}
	if !t.resumed || t.marking {
		t.marks.clear()
	} else {
		t.marks.set(&r.agenda[t.markLane()], t.markDue(&r.b.cfg))
	}
	r.account(t)
	if t.removed && !t.busy && !t.marking && (!t.resumed || t.markFailures > 0 || t.settled()) {
		r.forget(t)
	}
}

// forget drops a removed tile whose last watermarks are written.
func (r *run) forget(t *tile) {
	t.work.clear()
	t.marks.clear()
	t.failures, t.backlog = 0, 0
	r.account(t)
	r.paces[t.pace]--
	t.forgotten = true
	delete(r.tiles, t.cursor.tile)
}

// dispatch starts what is due on every lane that is free, and returns when the next thing is.
func (r *run) dispatch(now time.Time) (next time.Time) {
	next = now.Add(time.Hour)
	for l := range lanes {
		for r.busy[l] < jobsOf[l] { // else its end brings us back here
			at, ok := r.agenda[l].first()
			if !ok {
				break
			}
			if at = latest(at, r.from[l]); at.After(now) {
				next = earliest(next, at)
				break
			}
			r.startLane(l, r.agenda[l].take(now, tilesAJob[l]), now)
		}
	}
	if from := r.from[passLane]; from.After(now) && r.busy[passLane] < jobsOf[passLane] {
		next = earliest(next, from) // sync may have left hints until then
	}
	r.tell()
	return next
}

func (r *run) startLane(l lane, tiles []*tile, now time.Time) {
	switch l {
	case resumeLane:
		r.startResume(tiles)
	case markLane, markRetryLane:
		if len(tiles) < tilesAJob[l] {
			// Many small flushes would cost a wake-up each: let the next ones gather.
			r.from[l] = now.Add(r.b.cfg.MarkEvery / 10)
		}
		r.startMarks(l, tiles)
	default:
		r.startPass(l, tiles, now)
	}
}

// unmarked returns the tiles whose watermarks are behind.
func (r *run) unmarked() map[lane][]*tile {
	tiles := map[lane][]*tile{}
	for _, t := range r.tiles {
		if t.resumed && !t.settled() {
			t.marks.clear()
			tiles[t.markLane()] = append(tiles[t.markLane()], t)
		}
	}
	return tiles
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
