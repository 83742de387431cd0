package tiered

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/stream/fanout"
)

// freshFor is how many intervals presence counts.
const freshFor = 3

// forgetAfter is after how many intervals without a message a tile counts as cool, and one of the ordinary tier is
// forgotten: another bridge may have it now.
const forgetAfter = 10

// publishing is the publishing side of a Fanout: what it knows of the tiles it publishes, and the decisions over them.
type publishing struct {
	mu      sync.Mutex
	tiles   map[fence.TileID]*tile
	looked  time.Time // when the tiles were last looked at
	looking bool
	closed  bool

	pubCounters
}

// tile is one tile of a publisher, guarded by publishing.mu.
type tile struct {
	id    fence.TileID
	state State
	since time.Time // of the state

	bytes     int // published since the last look
	idle      int // looks without a message
	rate      int // bytes a second, published
	audience  int
	counted   bool                 // the audience is known
	present   map[uint64]time.Time // when each process last said that it hears the broker
	hot       time.Time            // when it was last at half of a bound or above
	failing   time.Time            // since when the ordinary tier has not taken its messages; zero: it takes them
	resume    time.Time            // the broker failed: it is tried again then
	subscribe func()               // ends the subscription to presence; nil: there is none
}

// of returns the tile's record.
func (p *publishing) of(id fence.TileID, now time.Time) *tile {
	t := p.tiles[id]
	if t == nil {
		t = &tile{id: id, state: Ordinary, since: now, hot: now}
		p.tiles[id] = t
	}
	return t
}

func (p *publishing) count() (both, broker int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tiles {
		switch t.state {
		case Both:
			both++
		case Broker:
			broker++
		}
	}
	return both, broker
}

// present returns the tiles whose presence is subscribed to.
func (p *publishing) present() (all []*tile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tiles {
		if t.subscribe != nil {
			all = append(all, t)
		}
	}
	return all
}

// Tiles returns the tiles that are not in Ordinary, in no order.
func (f *Fanout) Tiles() (all []TileInfo) {
	f.pub.mu.Lock()
	defer f.pub.mu.Unlock()
	now := time.Now()
	for _, t := range f.pub.tiles {
		if t.state != Ordinary {
			all = append(all, f.info(t, now))
		}
	}
	return all
}

func (f *Fanout) info(t *tile, now time.Time) TileInfo {
	return TileInfo{Tile: t.id, State: t.state, Audience: t.audience, Present: f.hearing(t, now),
		Bytes: t.rate * t.audience, Since: max(0, now.Sub(t.since))}
}

// due looks at the tiles in the background if it is time. The caller holds publishing.mu.
func (f *Fanout) due(now time.Time) {
	p := &f.pub
	if p.looking || p.closed {
		return
	}
	if p.looked.IsZero() {
		p.looked = now
	}
	if now.Sub(p.looked) < f.cfg.tuning.Interval {
		return
	}
	p.looking = true
	f.wg.Go(func() { f.look(now) })
}

// look counts the audiences and decides over every tile.
func (f *Fanout) look(now time.Time) {
	p := &f.pub
	p.mu.Lock()
	took := now.Sub(p.looked)
	p.looked = now
	var ids []fence.TileID
	for id, t := range p.tiles {
		t.rate = int(float64(t.bytes) / took.Seconds())
		if t.idle++; t.bytes > 0 {
			t.idle = 0
		}
		t.bytes = 0
		if t.idle > forgetAfter && t.state == Ordinary {
			delete(p.tiles, id)
			continue
		}
		if t.idle == 0 || t.state != Ordinary {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(f.ctx, brokerTimeout)
	audience, err := f.ordinary.Audience(ctx, ids)
	cancel()
	if err != nil {
		p.uncounted.Add(1)
	}
	var moves []MoveInfo
	now = time.Now()
	p.mu.Lock()
	for i, id := range ids {
		t := p.tiles[id]
		if t.counted = err == nil; t.counted {
			t.audience = audience[i]
		}
		if m, moved := f.decide(t, now); moved {
			moves = append(moves, m)
		}
	}
	p.looking = false
	p.mu.Unlock()
	for i := range moves {
		f.moved(&moves[i])
	}
}

// Reasons of moves.
const (
	reasonHot   = "many subscribers or bytes"
	reasonCool  = "few subscribers and bytes"
	reasonHeard = "all subscribers hear the broker"
	reasonDeaf  = "a subscriber does not hear the broker"
	reasonDown  = "the broker failed"
)

// decide moves a tile on, if it is to. It is the table of the package's documentation. The caller holds publishing.mu.
func (f *Fanout) decide(t *tile, now time.Time) (MoveInfo, bool) {
	hot, cool := f.measure(t, now)
	switch t.state {
	case Ordinary:
		if hot {
			return f.set(t, Both, now, reasonHot)
		}
	case Both:
		if now.Sub(t.since) < f.cfg.tuning.Overlap {
			break
		}
		if cool && t.failing.IsZero() {
			return f.set(t, Ordinary, now, reasonCool)
		}
		if !cool && f.heard(t, now) && (t.counted || t.fails(now, f.cfg.tuning.Interval)) {
			return f.set(t, Broker, now, reasonHeard)
		}
	case Broker:
		if cool && t.counted {
			return f.set(t, Both, now, reasonCool)
		}
		if !f.heard(t, now) {
			return f.fall(t, now, reasonDeaf)
		}
	}
	return MoveInfo{}, false
}

// measure compares a tile with the bounds: whether it is at one of them, and whether it has been below half of both for
// Cooldown. The caller holds publishing.mu.
func (f *Fanout) measure(t *tile, now time.Time) (hot, cool bool) {
	load := t.rate * t.audience
	if t.idle <= forgetAfter && (2*t.audience >= f.cfg.Subscribers || 2*load >= f.cfg.Bytes) {
		t.hot = now
	}
	hot = t.counted && t.idle == 0 && (t.audience >= f.cfg.Subscribers || load >= f.cfg.Bytes)
	return hot, now.Sub(t.hot) >= f.cfg.tuning.Cooldown
}

// set changes the state of a tile. The caller holds publishing.mu.
func (f *Fanout) set(t *tile, s State, now time.Time, reason string) (MoveInfo, bool) {
	m := MoveInfo{From: t.state, Reason: reason}
	if t.state == Ordinary {
		t.present = map[uint64]time.Time{}
	}
	t.state, t.since = s, now
	m.TileInfo = f.info(t, now)
	return m, true
}

// fall is set from Broker to Both because of a fault. The caller holds publishing.mu.
func (f *Fanout) fall(t *tile, now time.Time, reason string) (MoveInfo, bool) {
	f.pub.fellBack.Add(1)
	m, moved := f.set(t, Both, now, reason)
	m.Fault = true
	return m, moved
}

// hearing is how many processes lately said that they hear the tile on the broker. The caller holds publishing.mu.
func (f *Fanout) hearing(t *tile, now time.Time) int {
	for process, said := range t.present {
		if now.Sub(said) >= freshFor*f.cfg.tuning.Interval {
			delete(t.present, process)
		}
	}
	return len(t.present)
}

// heard reports whether the whole audience, as last counted, hears the tile on the broker. The caller holds
// publishing.mu.
func (f *Fanout) heard(t *tile, now time.Time) bool { return f.hearing(t, now) >= max(t.audience, 1) }

// fails reports whether the ordinary tier has not taken the tile's messages for d.
func (t *tile) fails(now time.Time, d time.Duration) bool {
	return !t.failing.IsZero() && now.Sub(t.failing) >= d
}

// route is by which tiers a message goes now. looked is when the tiles were last looked at: what is known of a tile
// that is in Broker must not be old. The caller holds publishing.mu.
func (f *Fanout) route(t *tile, now, looked time.Time) State {
	switch {
	case t.state == Both && now.Before(t.resume):
		return Ordinary
	case t.state == Broker && now.Sub(looked) >= 2*freshFor*f.cfg.tuning.Interval:
		return Both
	}
	return t.state
}

// moved does what follows a change of state: it listens to presence or ends that, and reports it.
func (f *Fanout) moved(m *MoveInfo) {
	f.pub.moves.Add(1)
	log := f.cfg.Logger.Info
	if m.Fault {
		log = f.cfg.Logger.Warn
	}
	log("tile moved between fan-out tiers", "tile", m.Tile, "from", m.From, "to", m.State, "reason", m.Reason,
		"audience", m.Audience, "present", m.Present, "bytes_per_second", m.Bytes)
	hook.Call(f.cfg.Hooks.Moved, *m)
	f.pub.mu.Lock()
	t := f.pub.tiles[m.Tile]
	f.pub.mu.Unlock()
	switch {
	case t == nil:
	case m.From == Ordinary:
		stop, err := f.broker.SubscribePresence(m.Tile, func(process uint64) {
			f.pub.mu.Lock()
			defer f.pub.mu.Unlock()
			if t.present != nil {
				t.present[process] = time.Now()
			}
		})
		if err == nil { // else nothing is heard, and the tile stays in Both
			f.listen(t, stop)
		}
	case m.State == Ordinary:
		f.listen(t, nil)
	}
}

// listen replaces the tile's subscription to presence.
func (f *Fanout) listen(t *tile, stop func()) {
	f.pub.mu.Lock()
	t.subscribe, stop = stop, t.subscribe
	f.pub.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// brokerFailed takes note that the broker did not take messages of a tile. It is left alone for a while, since a broker
// that hangs delays the other tiles of the call; and it must carry everything for 2 s before it is relied on.
func (f *Fanout) brokerFailed(id fence.TileID) {
	f.pub.mu.Lock()
	t := f.pub.tiles[id]
	var m MoveInfo
	var moved bool
	if t != nil {
		now := time.Now()
		if t.state == Broker {
			m, moved = f.fall(t, now, reasonDown)
		}
		clear(t.present) // each has to be heard anew
		t.resume = now.Add(freshFor * f.cfg.tuning.Interval)
		t.since = t.resume
	}
	f.pub.mu.Unlock()
	if moved {
		f.moved(&m)
	}
}

// noteOrdinary keeps account of since when the ordinary tier fails for tiles that are on both.
func (f *Fanout) noteOrdinary(messages []fanout.Message, states []State, ordinary *batch) {
	f.pub.mu.Lock()
	defer f.pub.mu.Unlock()
	for i := range messages {
		if states[i] != Both {
			continue
		}
		t := f.pub.tiles[messages[i].Tile]
		switch {
		case t == nil:
		case ordinary.handed[i]:
			t.failing = time.Time{}
		case t.failing.IsZero():
			t.failing = time.Now()
		}
	}
}

// brokerSuffices reports whether a message counts as handed over that the broker took and the ordinary tier did not: if
// the whole audience hears the broker, or if the ordinary tier has failed for an interval and any process hears it.
func (f *Fanout) brokerSuffices(id fence.TileID) bool {
	f.pub.mu.Lock()
	defer f.pub.mu.Unlock()
	t := f.pub.tiles[id]
	if t == nil {
		return false
	}
	now := time.Now()
	present := f.hearing(t, now)
	return present > 0 && (present >= t.audience || t.fails(now, f.cfg.tuning.Interval))
}
