package bridge

import "time"

// pace is how it was decided when a tile is read next.
type pace int

const (
	quiet    pace = iota // polled, less and less often up to every MaxPoll
	flowing              // polled as one whose events flow
	rhythmic             // when its rhythm says that the next entry is due
	hinted               // when a hint says so
	paces
)

// reschedule decides when a tile is read again after a pass without failure.
func (r *run) reschedule(t *tile, pt *part, p *pass, began, now time.Time) {
	read := p.began.Add(p.info.Read).Sub(r.began)
	for i, committed := range pt.commits {
		t.rhythm.found(committed, read, pt.wasDue && i == len(pt.commits)-1)
	}
	if pt.entries > 0 {
		t.lastSeen = now
	}
	r.judgeHints(t, pt, now)
	before := t.pace
	if r.hinted(t, now) {
		t.pace, t.due = hinted, r.hintedDue(t, pt, p.began, now)
	} else {
		t.pace, t.due = r.polledDue(t, pt, p.began, began, now)
	}
	r.paces[before]--
	r.paces[t.pace]++
	if pt.more || t.woken {
		t.due = now
	}
}

// polledDue is when a tile is read that no hints are relied on for.
func (r *run) polledDue(t *tile, pt *part, asked, began, now time.Time) (pace, time.Time) {
	cfg := &r.b.cfg
	if pt.entries == 0 {
		t.rhythm.nothing(asked.Sub(r.began))
	}
	if t.rhythm.in() {
		t.interval = cfg.MinPoll
		next := r.began.Add(t.rhythm.due())
		// Something may come off the beat; how often to look is a question of how many tiles there are.
		between := r.everyOther(rhythmic)
		if t.rhythm.shaky() {
			between /= 4
		}
		between = max(between, cfg.MaxPoll)
		return rhythmic, earliest(next, r.onGrid(began.Add(between), cfg.MinPoll/2))
	}
	p := quiet
	switch {
	case pt.entries > 0 || now.Sub(t.lastSeen) < cfg.Linger:
		p = flowing
		t.interval = max(cfg.MinPoll, min(r.everyOther(flowing), cfg.MaxPoll))
	default:
		t.interval = min(2*t.interval, cfg.MaxPoll)
	}
	// A pass that takes longer than that leaves both clusters as much time as it took.
	rest := min(now.Sub(began), cfg.MaxPoll)
	return p, r.onGrid(latest(began.Add(t.interval), now.Add(rest)), cfg.MinPoll/2)
}

// everyOther is the time between two reads of a tile if all of its pace share Config.PollRate.
func (r *run) everyOther(p pace) time.Duration {
	return time.Duration(r.paces[p]) * time.Second / time.Duration(r.b.cfg.PollRate)
}

// onGrid is the multiple of grid nearest to at, so that tiles find into common passes.
func (r *run) onGrid(at time.Time, grid time.Duration) time.Time {
	return r.began.Add(at.Sub(r.began).Round(grid))
}

// hintedDue is when a tile is read if no hint comes before.
func (r *run) hintedDue(t *tile, pt *part, asked, now time.Time) time.Time {
	cfg := &r.b.cfg
	if pt.entries == 0 {
		t.rhythm.empty = asked.Sub(r.began)
	}
	if t.rhythm.in() && pt.entries == 0 && asked.Sub(r.began) >= t.rhythm.due() {
		t.rhythm.skip()
	}
	switch {
	case t.suspect:
		t.interval = cfg.MaxPoll // by then its hint has come, or never will
	case t.rhythm.in():
		t.interval = cfg.MaxPoll
		return r.began.Add(t.rhythm.due() + hintGrace)
	case pt.entries > 0:
		t.interval = cfg.MaxPoll
	default:
		t.interval = min(2*t.interval, cfg.HintedPoll)
	}
	return r.onGrid(now.Add(spread(t.interval)), cfg.MaxPoll)
}
