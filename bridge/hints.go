package bridge

import (
	"math/rand/v2"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

const (
	// hintGrace is how long after a beat's expected entry its hint may come. Then the tile is read without.
	hintGrace = 50 * time.Millisecond

	// hintDoubt is for how long a tile, or a group of tiles, is polled after its hints were missed.
	hintDoubt = 30 * time.Second

	// Hints of a whole group are doubted when so many were missed within a HintedPoll, and these are at least
	// one in doubtShare of those that came.
	doubtMissed = 8
	doubtShare  = 4
)

// Wake says that tiles have, or may have, new entries: they are read in the next pass, which begins at
// once or, while passes follow one another, a few milliseconds later. It is a hint; a lost one costs the
// time to the tile's next poll. It does not shorten the wait of a tile that failed. Tiles the bridge does not
// forward are ignored. It costs a map lookup a tile.
func (b *Bridge) Wake(tiles ...fence.TileID) {
	b.mu.Lock()
	before := len(b.woken)
	for _, id := range tiles {
		if w := b.wanted[id]; w != nil && !w.woken {
			w.woken = true
			b.woken = append(b.woken, w)
		}
	}
	tell := before == 0 && len(b.woken) > 0
	b.mu.Unlock()
	if tell {
		b.signal()
	}
}

// Hints says whether Wake is going to be called for what is committed from now on: if so, quiet tiles are
// polled every Config.HintedPoll only. It is for a source of hints of the caller's own, one that has no
// fanout.HintSubscriber. Initially it is not.
func (b *Bridge) Hints(up bool) {
	for group := range fanout.HintGroups {
		b.setHints(group, up)
	}
}

func (b *Bridge) setHints(group int, up bool) {
	b.mu.Lock()
	b.hints[group] = up
	b.lapsed[group] = b.lapsed[group] || !up
	b.turned = true
	b.mu.Unlock()
	b.signal()
}

// subscribe asks for the hints of all groups.
func (b *Bridge) subscribe() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for group, s := range stops {
			s()
			b.setHints(group, false)
		}
	}
	if b.cfg.Hints == nil {
		return stop, nil
	}
	for group := range fanout.HintGroups {
		s, err := b.cfg.Hints.SubscribeHints(group, func(tiles []fence.TileID) { b.Wake(tiles...) },
			func(up bool) { b.setHints(group, up) })
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, s)
	}
	return stop, nil
}

// hintGroup is what a run knows of the hints of one group.
type hintGroup struct {
	up    bool
	doubt time.Time // they are not relied on until then

	since             time.Time // when counting began
	announced, missed int
}

// hinted reports whether the tile's hints are relied on.
func (r *run) hinted(t *tile, now time.Time) bool {
	g := &r.groups[t.group]
	return g.up && !now.Before(g.doubt) && !now.Before(t.doubt)
}

// takeHints takes over which groups' hints arrive. Where they do again after a lapse, however short, some may have
// been lost. b.mu is held.
func (r *run) takeHints(now time.Time) {
	for i := range r.groups {
		g := &r.groups[i]
		if r.b.lapsed[i] && g.up {
			r.hasten(i, now)
		}
		if up := r.b.hints[i]; up != g.up {
			*g = hintGroup{up: up}
		}
	}
	clear(r.b.lapsed[:])
}

// hasten makes the tiles of a group due within MaxPoll, because their hints are no longer relied on.
func (r *run) hasten(group int, now time.Time) {
	limit := r.b.cfg.MaxPoll
	for _, t := range r.tiles {
		if t.group == group && t.pace == hinted && t.failures == 0 && t.due.After(now.Add(limit)) {
			t.interval = limit
			t.due = now.Add(rand.N(limit))
			r.plan(t)
		}
	}
}

// judgeHints looks whether what a read found had been announced. A poll may find an entry before its hint
// comes, so that the tile is only suspect until it is read again.
func (r *run) judgeHints(t *tile, pt *part, now time.Time) {
	g := &r.groups[t.group]
	switch {
	case pt.woken || t.woken:
		t.suspect = false
		g.announced++
	case t.pace != hinted || !r.hinted(t, now):
		t.suspect = false
	case t.suspect:
		t.suspect = false
		r.missedHint(t, g, now)
	case pt.entries > 0:
		t.suspect = true
	}
}

// missedHint counts a hint that did not come, and has the tile polled for a while; or its whole group if that
// is common.
func (r *run) missedHint(t *tile, g *hintGroup, now time.Time) {
	r.b.count(func(s *Stats) { s.HintsMissed++ })
	t.doubt = now.Add(hintDoubt)
	if now.Sub(g.since) > r.b.cfg.HintedPoll {
		g.since, g.announced, g.missed = now, 0, 0
	}
	g.missed++
	if g.missed < doubtMissed || g.missed*doubtShare < g.announced {
		return
	}
	g.doubt = now.Add(hintDoubt)
	r.b.cfg.Logger.Warn("wake hints do not arrive: polling", "group", t.group, "missed", g.missed, "arrived", g.announced)
	r.hasten(t.group, now)
}
