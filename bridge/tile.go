package bridge

import (
	"context"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// tile is what a run keeps of one tile.
type tile struct {
	cursor  cursor
	resumed bool // the cursor is known
	removed bool // no longer wanted; goes when its last watermarks are written
	busy    bool // in a pass, or being resumed

	due      time.Time // when it is to be read, or resumed
	interval time.Duration
	lastSeen time.Time // of the last event
	woken    bool      // was woken during a pass
	failures int       // passes or resumes in a row
	backlog  int       // entries read and not handed over when it last failed

	marking      bool
	marked       fence.Seq // what the watermarks say
	markedAt     time.Time // when they were last written; zero: never by this run, so that a lease is due
	markFailures int
	markRetry    time.Time
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

func (t *tile) markLane() lane {
	if t.failures > 0 || t.markFailures > 0 {
		return markRetryLane
	}
	return markLane
}

// wake makes an idle, healthy tile due.
func (t *tile) wake(now time.Time) {
	if t.failures == 0 && !t.busy && t.due.After(now) {
		t.due = now
	}
}

// markDue is when the watermarks are to be written next.
func (t *tile) markDue(c *Config) time.Time {
	switch {
	case t.markFailures > 0:
		return t.markRetry
	case t.removed:
		return time.Time{}
	case t.marked < t.cursor.read:
		return t.markedAt.Add(c.MarkEvery)
	}
	return t.markedAt.Add(c.RenewEvery)
}

// startPass reads tiles and publishes what they have.
func (r *run) startPass(l lane, tiles []*tile, now time.Time) {
	if l == retryLane {
		// With a publisher that reports only how far it got, a tile that always fails must not stand in
		// front of others that would not.
		slices.SortStableFunc(tiles, func(a, b *tile) int { return a.failures - b.failures })
	}
	cfg := &r.b.cfg
	limit := max(1, min(cfg.Batch, cfg.PassBytes/r.entryBytes/len(tiles)))
	p := &pass{retry: l == retryLane, parts: make([]part, len(tiles))}
	for i, t := range tiles {
		t.busy, t.woken = true, false
		p.parts[i] = part{tile: t, cursor: t.cursor, limit: limit}
	}
	r.start(l, func(ctx context.Context) func(time.Time) {
		r.b.runPass(ctx, p)
		return func(done time.Time) { r.bookPass(p, now, done) }
	})
}

// bookPass takes over what a pass that was due at began has done.
func (r *run) bookPass(p *pass, began, now time.Time) {
	bytes := 0
	for i := range p.parts {
		pt := &p.parts[i]
		t := pt.tile
		t.busy = false
		t.cursor = pt.cursor
		bytes += pt.bytes
		if pt.op != OpRead || pt.err == nil { // a read that failed says nothing of what waits
			t.backlog = pt.backlog
		}
		if pt.err != nil {
			t.failures++
		} else {
			t.failures = 0
			r.reschedule(t, pt, began, now)
		}
	}
	if p.pubFailed != nil {
		p.pubFailed.tile.failures++
	}
	r.delay(p, now)
	if p.info.Entries > 0 {
		// Half the old and half the new: follows a change of the game's traffic within a few passes.
		r.entryBytes = max(1, (r.entryBytes+bytes/p.info.Entries+64)/2)
	}
	r.report(p)
}

// delay sets when the tiles that failed are tried again. Those that failed equally often wait equally
// long, and so stay together in one pass.
func (r *run) delay(p *pass, now time.Time) {
	waits := map[int]time.Duration{}
	for i := range p.parts {
		t := p.parts[i].tile
		if t.failures == 0 {
			continue
		}
		if waits[t.failures] == 0 {
			waits[t.failures] = r.b.cfg.backoff(t.failures)
		}
		t.due = now.Add(waits[t.failures])
	}
}

// reschedule decides when a tile is read again after a pass without failure.
func (r *run) reschedule(t *tile, pt *part, began, now time.Time) {
	cfg := &r.b.cfg
	switch {
	case pt.entries > 0:
		t.lastSeen, t.interval = now, cfg.MinPoll
	case now.Sub(t.lastSeen) < cfg.Linger:
		t.interval = cfg.MinPoll
	default:
		t.interval = min(2*t.interval, cfg.MaxPoll)
	}
	if pt.more || t.woken {
		t.due = now
		return
	}
	// With very many tiles a pass takes longer than MinPoll: leave both clusters as much time as it took.
	rest := min(now.Sub(began), cfg.MaxPoll)
	t.due = latest(began.Add(t.interval), now.Add(rest))
}
