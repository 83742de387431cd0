package overload

import "time"

// delay is the least that anything had to wait in each interval.
type delay struct {
	began   time.Time     // of the interval
	noted   int           // in it
	least   time.Duration // of what was
	refused int           // requests, in it
	last    time.Duration // least of the interval before
	late    bool          // it was above the target
}

func (d *delay) note(waited time.Duration) {
	if d.noted == 0 || waited < d.least {
		d.least = waited
	}
	d.noted++
}

// look ends the interval if it is over. One in which nothing was noted is late only if something waits for a turn all
// the time. What was late is so until half of the target is reached in an interval in which few were refused: where
// most are, the room was only empty for a moment.
func (d *delay) look(c *Control, now time.Time) {
	passed := now.Sub(d.began)
	if passed < c.interval() {
		return
	}
	if d.noted == 0 && d == &c.waits {
		d.least = c.longest(now)
	}
	d.last = d.least
	d.late = d.last > c.target || d.late && (d.last > c.target/2 || d.refused > d.noted/8)
	if d.late {
		c.counts.late++
	}
	if d == &c.waits {
		c.shares.begin()
	}
	d.began, d.noted, d.least, d.refused = now, 0, 0, 0
}

// longest is how long the next request has been waiting.
func (c *Control) longest(now time.Time) time.Duration {
	for k := range c.lines {
		if e := c.lines[k].first(); e != nil {
			return now.Sub(e.came)
		}
	}
	return 0
}

// gap is the mean time between two starts while requests wait: what one of them makes the next one wait.
type gap struct {
	mean  float64 // nanoseconds
	known int     // starts that it is of, gapMemory at most
	last  time.Time
}

// gapMemory is how many starts count, and how many a gap is known from.
const gapMemory = 64

// note counts the start of a request.
func (g *gap) note(came, now time.Time) {
	if !g.last.IsZero() && !came.After(g.last) { // it waited at the start before
		g.known = min(g.known+1, gapMemory)
		g.mean += (float64(now.Sub(g.last)) - g.mean) / float64(g.known)
	}
	g.last = now
}

// times is how many starts there are in a time, at least some; known is false before that can be said.
func (g *gap) times(d time.Duration, least int) (n int, known bool) {
	if g.known < gapMemory || g.mean == 0 {
		return least, false
	}
	return max(least, int(float64(d)/g.mean)), true
}

// shares counts the starts of each holder in an interval.
type shares struct {
	of   map[string]int
	mean int // of all in the interval before
}

func (s *shares) count(holder string) {
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[holder]++
}

// modest reports whether a holder has had little of what the others have.
func (s *shares) modest(holder string) bool { return 2*(s.of[holder]+1) <= s.mean }

// begin ends an interval.
func (s *shares) begin() {
	starts := 0
	for _, n := range s.of {
		starts += n
	}
	s.mean = starts / max(1, len(s.of))
	clear(s.of)
}

// pause is how long refused callers are sent away. It grows until few of those that come are refused: a refusal costs
// less than a turn, and not nothing.
type pause struct {
	after  time.Duration
	began  time.Time // of the round: those refused in it come back in the next one
	turns  int       // in the round
	denied int       // likewise
}

func (p *pause) started(now time.Time, interval time.Duration) {
	p.look(now, interval)
	p.turns++
}

func (p *pause) refused(now time.Time, interval time.Duration) time.Duration {
	p.look(now, interval)
	p.denied++
	return p.after
}

func (p *pause) look(now time.Time, interval time.Duration) {
	round := max(interval, p.after)
	passed := now.Sub(p.began)
	if passed < round {
		return
	}
	switch {
	case passed > 4*round: // nothing was asked for meanwhile
		p.after = 0
	case p.denied > p.turns/2:
		p.after *= 2
	case p.denied < p.turns/4:
		p.after -= p.after / 4
	}
	p.after = min(mostAfter, max(leastAfter, p.after))
	p.began, p.turns, p.denied = now, 0, 0
}
