package bridge

import (
	"math/rand/v2"
	"time"

	"github.com/tilefence/tilefence/stream/fanout"
)

const (
	// linger is how long after its last event a tile still counts as one whose events flow. Then the time between
	// reads doubles with each that finds nothing, up to MaxPoll, or HintedPoll with hints. A tile whose events flow
	// and whose hint is lost waits for the next hint, or for linger. It exceeds the slowest tick twice, or a tile that
	// commits once a tick would have gone quiet before each.
	linger = time.Second

	// pollRate is how many tiles whose events flow are read in a second to look for more while hints are not relied
	// on: 300 tiles every 10 ms, 3,000 tiles every 100 ms. If there are more, each is read less often than every
	// MinPoll, though not less often than every MaxPoll.
	pollRate = 30_000

	// pollAfterMiss is for how long a tile, or a group of tiles, is polled after its hints were missed.
	pollAfterMiss = 30 * time.Second

	// Hints of a whole group are not relied on when so many were missed within a HintedPoll, and these are at least
	// one in groupShare of those that came.
	groupMisses = 8
	groupShare  = 4
)

// pacer decides when tiles are read.
type pacer struct {
	cfg     *Config
	began   time.Time
	groups  [fanout.HintGroups]hintGroup
	flowing int // tiles that are polled, and whose events flow
}

// hintGroup is what is known of the hints of one group.
type hintGroup struct {
	up        bool
	pollUntil time.Time // they are not relied on until then

	since             time.Time // when counting began
	announced, missed int
}

// pace is when one tile is read.
type pace struct {
	group     int // of its hints
	due       time.Time
	interval  time.Duration
	lastSeen  time.Time // of the last event
	hinted    bool      // due was set with its hints in mind
	flowing   bool      // counts in pacer.flowing
	woken     bool      // since its last pass began
	suspect   bool      // has had an entry that no hint has announced so far
	pollUntil time.Time // its hints are not relied on until then
}

// missed is what a read says of the hints.
type missed int

const (
	none       missed = iota
	ofTile            // a hint did not come
	ofTheGroup        // so many did not that those of the whole group are not relied on for a while
)

// relies reports whether the tile's hints are relied on.
func (p *pacer) relies(t *pace, now time.Time) bool {
	g := &p.groups[t.group]
	return g.up && !now.Before(g.pollUntil) && !now.Before(t.pollUntil)
}

// next sets when a tile is read again after a read that began at began and found so many entries, because of a hint
// or not. more says that there are more entries.
func (p *pacer) next(t *pace, entries int, woken, more bool, began, now time.Time) (m missed) {
	if entries > 0 {
		t.lastSeen = now
	}
	m = p.judge(t, woken || t.woken, entries > 0, now)
	t.hinted = p.relies(t, now)
	p.count(t, !t.hinted && now.Sub(t.lastSeen) < linger)
	switch {
	case more || t.woken:
		t.due = now
	case t.hinted:
		p.wait(t, entries > 0)
		t.due = p.onGrid(now.Add(spread(t.interval)), p.cfg.tuning.MaxPoll)
	default:
		t.interval = min(2*t.interval, p.cfg.tuning.MaxPoll)
		if t.flowing {
			shared := time.Duration(p.flowing) * time.Second / pollRate
			t.interval = min(max(p.cfg.tuning.MinPoll, shared), p.cfg.tuning.MaxPoll)
		}
		// A pass that takes longer than that leaves both clusters as much time as it took.
		rest := min(now.Sub(began), p.cfg.tuning.MaxPoll)
		t.due = p.onGrid(latest(began.Add(t.interval), now.Add(rest)), p.cfg.tuning.MinPoll/2)
	}
	return m
}

// wait sets for how long a tile waits for a hint before it is read without.
func (p *pacer) wait(t *pace, found bool) {
	switch {
	case t.suspect:
		t.interval = p.cfg.tuning.MaxPoll // by then its hint has come, or never will
	case found:
		t.interval = min(linger, p.cfg.HintedPoll)
	default:
		t.interval = min(2*t.interval, p.cfg.HintedPoll)
	}
}

// count enters whether a tile is one of those that share pollRate.
func (p *pacer) count(t *pace, flowing bool) {
	if flowing != t.flowing {
		t.flowing = flowing
		p.flowing += map[bool]int{true: 1, false: -1}[flowing]
	}
}

// onGrid is the multiple of grid nearest to at, so that tiles find into common passes.
func (p *pacer) onGrid(at time.Time, grid time.Duration) time.Time {
	return p.began.Add(at.Sub(p.began).Round(grid))
}

// hasten makes a tile due within MaxPoll whose hints are no longer relied on. It is false if that changes nothing.
func (p *pacer) hasten(t *pace, now time.Time) bool {
	if !t.hinted || !t.due.After(now.Add(p.cfg.tuning.MaxPoll)) {
		return false
	}
	t.interval = p.cfg.tuning.MaxPoll
	t.due = now.Add(rand.N(p.cfg.tuning.MaxPoll))
	return true
}

// judge looks whether what a read found had been announced. A poll may find an entry before its hint comes, so that
// the tile is only suspect until it is read again.
func (p *pacer) judge(t *pace, announced, found bool, now time.Time) missed {
	g := &p.groups[t.group]
	suspect := t.suspect
	t.suspect = false
	switch {
	case announced:
		g.announced++
	case !t.hinted || !p.relies(t, now):
	case suspect:
		t.pollUntil = now.Add(pollAfterMiss)
		return g.miss(now, p.cfg.HintedPoll)
	default:
		t.suspect = found
	}
	return none
}

// miss counts a hint that did not come.
func (g *hintGroup) miss(now time.Time, period time.Duration) missed {
	if now.Sub(g.since) > period {
		g.since, g.announced, g.missed = now, 0, 0
	}
	g.missed++
	if g.missed < groupMisses || g.missed*groupShare < g.announced {
		return ofTile
	}
	g.pollUntil = now.Add(pollAfterMiss)
	return ofTheGroup
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// spread is a time between three quarters of d and d, so that what began together does not stay together.
func spread(d time.Duration) time.Duration { return d - rand.N(d/4+1) }
