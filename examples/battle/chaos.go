package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
)

// chaos breaks one thing after another while the battle is played, puts each right again, and times how
// long the tiles that suffered need to be well.
type chaos struct {
	*deployment
	rng  *rand.Rand
	deck []fault // kinds still to come before any is repeated
	all  []fault // kinds that this battle can be broken by

	mu      sync.Mutex
	count   uint64
	shown   *spectator.Fault // the one under way, or the last
	trial   *trial           // of the one under way; nil between two
	results []faultResult
}

// fault is one kind of thing that can break.
type fault struct {
	kind  string
	means string // one sentence for who watches
	// aim chooses what to break, and breaks nothing yet. errNotNow: there is nothing to break at the moment.
	aim func(ctx context.Context, c *chaos) (*strike, error)
}

var errNotNow = errors.New("nothing to break")

// strike is one thing to be broken, and how to put it right.
type strike struct {
	host         *host  // that suffers, or nil
	system, node string // that suffers; see spectator.Fault
	tiles        []fence.TileID
	lasts        time.Duration // until it is healed; zero: heal at once
	hit          func(ctx context.Context) error
	heal         func(ctx context.Context) error // nil: nothing to do
	whileIll     bool                            // heal as soon as the tiles are well, if that is sooner
	settles      time.Duration
	delivery     bool // what suffers is what clients see
}

// faultResult is a fault that is over.
type faultResult struct {
	kind                          string
	detection, takeover, recovery time.Duration // detection zero: no tile changed hands
	recovered                     bool
}

// Bounds of one fault.
const (
	patience   = 30 * time.Second       // for every tile to be well after the healing
	healing    = 45 * time.Second       // for the healing itself: a Redis Cluster has to agree
	breather   = 700 * time.Millisecond // between two faults, at least
	watchEvery = 10 * time.Millisecond
)

func newChaos(d *deployment) *chaos {
	c := &chaos{deployment: d, rng: rand.New(rand.NewPCG(d.options.seed, 0xc4a05))}
	c.all = processFaults()
	if d.backends.loseTile != nil {
		c.all = append(c.all, lostCoordination(loseTiles))
	}
	if d.backends.stack != nil {
		c.all = append(c.all, serverFaults()...)
	}
	return c
}

// run breaks things until ctx ends; then the last is put right before run returns.
func (c *chaos) run(ctx context.Context) error {
	next := time.Now().Add(c.options.chaosEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(time.Until(next), breather)):
		}
		next = time.Now().Add(c.options.chaosEvery)
		if err := c.undisturbed(ctx); err != nil && !errors.Is(err, errNotNow) {
			return err
		}
	}
}

// draw picks the next kind of fault: each comes once before any comes again.
func (c *chaos) draw() fault {
	if len(c.deck) == 0 {
		c.deck = append(c.deck, c.all...)
		c.rng.Shuffle(len(c.deck), func(i, j int) { c.deck[i], c.deck[j] = c.deck[j], c.deck[i] })
	}
	f := c.deck[0]
	c.deck = c.deck[1:]
	return f
}

// undisturbed breaks one thing while nothing is handed over.
func (c *chaos) undisturbed(ctx context.Context) error {
	c.calm.Lock()
	defer c.calm.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	return c.one(ctx)
}

// one breaks one thing, waits, puts it right, and waits until all is well. A tile that does not recover is an error.
func (c *chaos) one(ctx context.Context) error {
	f := c.draw()
	s, err := f.aim(ctx, c)
	if err != nil {
		return fmt.Errorf("chaos: %s: %w", f.kind, err)
	}
	t := &trial{began: time.Now(), settles: s.settles, delivery: s.delivery}
	if s.host != nil {
		t.victim = s.host.Contact()
	}
	c.meters.vitals.begin(t, s.tiles)
	c.show(f, s, t)
	if err := s.hit(ctx); err != nil {
		return fmt.Errorf("chaos: %s: it could not be broken: %w", f.kind, err)
	}
	c.hold(ctx, s, t)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), healing)
	defer cancel()
	if s.heal != nil {
		if err := s.heal(bounded); err != nil {
			return fmt.Errorf("chaos: %s: it could not be put right: %w", f.kind, err)
		}
	}
	c.meters.vitals.heal(t)
	c.update(func(shown *spectator.Fault) { shown.Healed = t.healed.UnixMilli() })
	return c.recover(f, s, t)
}

// hold waits while a fault lasts.
func (c *chaos) hold(ctx context.Context, s *strike, t *trial) {
	end := time.Now().Add(s.lasts)
	for time.Now().Before(end) && ctx.Err() == nil {
		if s.whileIll && len(c.meters.vitals.suffering(t, c.world)) == 0 {
			return
		}
		time.Sleep(watchEvery)
	}
}

// recover waits until every tile that suffered is well, and every other has gone on since the healing.
func (c *chaos) recover(f fault, s *strike, t *trial) error {
	v := c.meters.vitals
	r := faultResult{kind: f.kind}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(watchEvery) {
		if len(v.suffering(t, c.world)) > 0 {
			continue
		}
		if r.recovery == 0 {
			r.detection, r.recovery = v.result(t)
			if r.detection > 0 {
				r.takeover = r.recovery - r.detection
			}
		}
		if _, all := v.committedSince(t.healed, c.world); all {
			r.recovered = true
			break
		}
	}
	c.over(f, s, t, r)
	if r.recovered {
		return nil
	}
	return fmt.Errorf("chaos: %s: %v later these tiles are not well: %s; and this one has not committed: %s", f.kind, patience,
		tileNames(v.suffering(t, c.world)), first(v.committedSince(t.healed, c.world)))
}

func first(id fence.TileID, _ bool) string { return id.String() }

// show tells the page that something was broken.
func (c *chaos) show(f fault, s *strike, t *trial) {
	c.mu.Lock()
	c.count++
	shown := spectator.Fault{ID: c.count, Kind: f.kind, Means: f.means, System: s.system, Node: s.node, Suffer: s.tiles,
		Began: t.began.UnixMilli(), Lasts: s.lasts.Milliseconds()}
	if s.host != nil {
		shown.Host = s.host.Contact()
	}
	if s.whileIll {
		shown.Lasts = 0
	}
	c.shown, c.trial = &shown, t
	c.mu.Unlock()
	e := spectator.Event{Kind: spectator.KindFault, Owner: shown.Host, Fault: shown.ID, Text: f.kind + where(&shown) + ": " + f.means}
	if len(s.tiles) == 1 {
		e.Tile = s.tiles[0]
	}
	c.meters.log.put(e)
	c.logger.Warn("chaos", "fault", f.kind, "number", shown.ID, "host", shown.Host, "system", s.system, "node", s.node, "tiles", len(s.tiles))
}

// where says what a fault has hit.
func where(f *spectator.Fault) string {
	switch {
	case f.Host != "":
		return " (" + f.Host + ")"
	case f.Node != "":
		return " (" + f.Node + ")"
	}
	return ""
}

// over tells that all is well again.
func (c *chaos) over(f fault, s *strike, t *trial, r faultResult) {
	text := fmt.Sprintf("%s well again after %s", count(len(s.tiles), "tile"), seconds(r.recovery))
	switch {
	case !r.recovered:
		text = "not every tile is well again"
	case len(s.tiles) == 0:
		text = "no tile missed a tick"
	case r.detection > 0:
		text += fmt.Sprintf(": noticed after %s, taken over in %s", seconds(r.detection), seconds(r.takeover))
	case s.delivery:
		text = fmt.Sprintf("clients saw every tile again after %s", seconds(r.recovery))
	}
	now := time.Now().UnixMilli()
	c.update(func(shown *spectator.Fault) {
		shown.Over, shown.Recovery, shown.Summary = now, r.recovery.Seconds()*1000, text
	})
	c.mu.Lock()
	id, host := c.shown.ID, c.shown.Host
	c.trial, c.results = nil, append(c.results, r)
	c.mu.Unlock()
	c.meters.log.put(spectator.Event{Kind: spectator.KindRecovered, Owner: host, Fault: id, Text: text})
	c.logger.Info("chaos", "over", f.kind, "number", id, "recovery", r.recovery, "detection", r.detection, "takeover", r.takeover)
}

func (c *chaos) update(f func(*spectator.Fault)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.shown)
}

// status is what the page shows.
func (c *chaos) status() *spectator.Chaos {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &spectator.Chaos{Seed: c.options.seed, Faults: int(c.count), Systems: c.systems()}
	if c.shown != nil {
		f := *c.shown
		f.Suffer = []fence.TileID{}
		if c.trial != nil {
			f.Suffer = c.meters.vitals.suffering(c.trial, c.world)
		}
		s.Fault = &f
	}
	return s
}

// line is chaos's part of the status line.
func (c *chaos) line() string {
	s := c.status()
	switch f := s.Fault; {
	case f == nil:
		return "  chaos: calm"
	case f.Over == 0:
		return fmt.Sprintf("  chaos %d: %s%s, %s", s.Faults, strings.ToUpper(f.Kind), where(f), seconds(time.Since(time.UnixMilli(f.Began))))
	default:
		return fmt.Sprintf("  chaos %d: %s, recovered in %s", s.Faults, f.Kind, seconds(time.Duration(f.Recovery*float64(time.Millisecond))))
	}
}

func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", ms(d))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func tileNames(tiles []fence.TileID) string {
	var names []string
	for _, id := range tiles {
		names = append(names, id.String())
	}
	return strings.Join(names, " ")
}
