package bridge

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// tile is what a run keeps of one tile.
type tile struct {
	cursor  cursor
	group   int  // of its hints
	resumed bool // the cursor is known
	removed bool // no longer wanted; goes when its last watermarks are written
	busy    bool // in a pass, or being resumed

	forgotten bool // another tile may have its place in the run

	work, marks, behind date // in the run's schedules

	due      time.Time // when it is to be read, or resumed
	pace     pace      // how that was decided
	interval time.Duration
	lastSeen time.Time // of the last event
	rhythm   rhythm
	woken    bool      // since its last pass began
	suspect  bool      // has had an entry that no hint has announced so far
	doubt    time.Time // its hints are not relied on until then
	failures int       // passes or resumes in a row

	backlog int   // entries that are known to wait
	oldest  int64 // commit time of the first of them
	counted struct {
		failing bool
		backlog int
	}

	marking      bool
	marked       fence.Seq // what the watermarks say
	rewind       bool      // they may be too high: the history went back
	rewound      fence.Seq // where it ended then
	lost         fence.Seq // entries below it are gone, which was reported
	markedAt     time.Time // when they were last written; zero: never by this run, so that a lease is due
	renew        time.Time // when to write them even if they say the same
	markFailures int
	markRetry    time.Time
}

func newTile(id fence.TileID, now time.Time, interval time.Duration) *tile {
	t := &tile{cursor: cursor{tile: id}, group: fanout.HintGroupOf(id), due: now, interval: interval, pace: quiet}
	t.work.tile, t.marks.tile, t.behind.tile = t, t, t
	return t
}

func (t *tile) lane() lane {
	switch {
	case !t.resumed:
		return resumeLane
	case t.failures > 0:
		return retryLane
	}
	return passLane
}

// wake makes an idle, healthy tile due.
func (r *run) wake(t *tile, now time.Time) {
	t.woken = true
	if t.failures == 0 && !t.busy && t.due.After(now) {
		t.due = now
		r.plan(t)
	}
}

// passGap is the least time between the beginnings of two passes that have nothing to catch up on; MinPoll if
// that is less. Hints that come one by one would else be a pass each.
const passGap = 2500 * time.Microsecond

// probe is how many entries of a tile that failed are read: enough to see whether it still does, and little to
// read again and again while it does.
const probe = 8

// startPass reads tiles and publishes what they have.
func (r *run) startPass(l lane, tiles []*tile, now time.Time) {
	cfg := &r.b.cfg
	limit := max(1, min(cfg.Batch, cfg.PassBytes/r.entryBytes/len(tiles)))
	if l == retryLane {
		giveWay(tiles)
		limit = min(limit, probe)
	} else {
		r.from[l] = now.Add(min(passGap, cfg.MinPoll))
	}
	p := r.newPass(len(tiles))
	p.retry = l == retryLane
	clock := now.Sub(r.began)
	for i, t := range tiles {
		pt := &p.parts[i]
		pt.tile, pt.cursor, pt.limit = t, t.cursor, limit
		pt.woken = t.woken
		pt.wasDue = !t.woken && t.rhythm.in() && t.rhythm.due() <= clock
		t.busy, t.woken = true, false
		r.plan(t)
	}
	r.start(l, func(ctx context.Context) func(time.Time) {
		r.b.runPass(ctx, p)
		return func(done time.Time) {
			r.bookPass(p, now, done)
			p.clear()
			r.passes = append(r.passes, p)
		}
	})
}

// newPass returns an empty pass of so many parts.
func (r *run) newPass(parts int) *pass {
	p := &pass{}
	if n := len(r.passes); n > 0 {
		p, r.passes = r.passes[n-1], r.passes[:n-1]
	}
	if cap(p.parts) < parts {
		p.parts = make([]part, parts)
	}
	p.parts = p.parts[:parts]
	return p
}

// bookPass takes over what a pass that was due at began has done.
func (r *run) bookPass(p *pass, began, now time.Time) {
	bytes := 0
	for i := range p.parts {
		pt := &p.parts[i]
		t := pt.tile
		t.busy = false
		t.cursor = pt.cursor
		if pt.regressed != nil {
			t.rewind, t.rewound = true, pt.regressed.Last.Seq
		}
		bytes += pt.bytes
		if pt.op != OpRead || pt.err == nil { // a read that failed says nothing of what waits
			t.backlog, t.oldest = pt.waiting()
		}
		if pt.err != nil {
			t.failures++
		} else {
			t.failures = 0
			r.reschedule(t, pt, p, began, now)
		}
		if pt.more {
			r.from[passLane] = now // catching up
		}
	}
	if p.pubFailed != nil {
		p.pubFailed.tile.failures++
	}
	r.delay(p, now)
	for i := range p.parts {
		r.plan(p.parts[i].tile)
	}
	if p.info.Entries > 0 {
		// Half the old and half the new: follows a change of the game's traffic within a few passes.
		r.entryBytes = max(1, (r.entryBytes+bytes/p.info.Entries+64)/2)
	}
	r.report(p)
}

// delay sets when the tiles that failed are tried again. Those that failed equally often wait equally
// long, and so stay together in one pass.
func (r *run) delay(p *pass, now time.Time) {
	var waits map[int]time.Duration
	for i := range p.parts {
		t := p.parts[i].tile
		if t.failures == 0 {
			continue
		}
		if waits == nil {
			waits = map[int]time.Duration{}
		}
		if waits[t.failures] == 0 {
			waits[t.failures] = r.b.cfg.backoff(t.failures)
		}
		t.due = now.Add(waits[t.failures])
	}
}

// backoff is how long to wait after so many failures in a row: doubling, half to one and a half times.
func (c *Config) backoff(failures int) time.Duration {
	wait := min(c.RetryMin<<min(failures-1, 20), c.RetryMax)
	return wait/2 + rand.N(wait)
}

// spread is a time between three quarters of d and d, so that what began together does not stay together.
func spread(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

// account brings the totals over all tiles up to date.
func (r *run) account(t *tile) {
	c := &t.counted
	if failing := t.failures > 0; failing != c.failing {
		c.failing = failing
		if failing {
			r.failing++
		} else {
			r.failing--
		}
	}
	r.backlog += t.backlog - c.backlog
	c.backlog = t.backlog
	if t.backlog > 0 && t.oldest > 0 {
		t.behind.set(&r.behind, time.UnixMilli(t.oldest))
	} else {
		t.behind.clear()
	}
}

// giveWay orders tiles that failed: with a publisher that reports only how far it got, one that always fails
// must not stand in front of others that would not.
func giveWay(tiles []*tile) {
	slices.SortStableFunc(tiles, func(a, b *tile) int { return a.failures - b.failures })
}
