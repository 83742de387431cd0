package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// chaos breaks one thing after another while the battle is played, puts each right again, and times how long the
// tiles that suffered need to be well.
type chaos struct {
	*deployment
	rng  *rand.Rand
	deck []fault // kinds still to come before any is repeated
	all  []fault // kinds that this battle can be broken by

	mu    sync.Mutex
	shown *spectator.Fault // the one under way, or the last
	trial *trial           // of the one under way; nil between two
	sums  chaosReport
}

// fault is one kind of thing that can break.
type fault struct {
	kind  string
	means string // one sentence for the person who watches
	aim   aim
}

// aim chooses what to break, and breaks nothing yet. errNotNow: there is nothing to break at the moment.
type aim func(ctx context.Context, c *chaos) (*strike, error)

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
	delivery     bool                 // what suffers is what clients see
	fenced       bool                 // the host must commit nothing to tiles that others have taken
	recovery     func() time.Duration // of what no tile shows, once it is healed; nil: tiles show it
}

// Bounds of one fault, generous: on a machine that is short of processors the nodes of a cluster suspect each other
// for a long time.
const (
	patience   = 2 * time.Minute        // for every tile to be well after the healing
	healing    = 3 * time.Minute        // for the healing itself: a Redis Cluster has to agree
	breather   = 700 * time.Millisecond // between two faults, at least
	watchEvery = 10 * time.Millisecond
)

func newChaos(d *deployment) *chaos {
	c := &chaos{deployment: d, rng: rand.New(rand.NewPCG(d.options.seed, 0xc4a05)), all: processFaults(),
		sums: chaosReport{Seed: d.options.seed, Kinds: map[string]*chaosKind{}}}
	if d.lobby != nil {
		c.all = append(c.all, d.lobby.workerKilled())
	}
	if d.pilot != nil {
		c.all = append(c.all, d.pilot.workerKilled())
	}
	if d.backends.throttle != nil {
		c.all = append(c.all, throttled())
	}
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
		if !wait.For(ctx, max(time.Until(next), breather)) {
			return nil
		}
		next = time.Now().Add(c.options.chaosEvery)
		if err := c.one(ctx); err != nil && !errors.Is(err, errNotNow) {
			return err
		}
	}
}

// draw picks the next kind of fault: each comes once before any comes again.
func (c *chaos) draw() fault {
	if len(c.deck) == 0 {
		c.deck = slices.Clone(c.all)
		c.rng.Shuffle(len(c.deck), func(i, j int) { c.deck[i], c.deck[j] = c.deck[j], c.deck[i] })
	}
	f := c.deck[0]
	c.deck = c.deck[1:]
	return f
}

// one breaks one thing, waits, puts it right, and waits until all is well. A tile that does not recover is an error.
func (c *chaos) one(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	f := c.draw()
	s, err := f.aim(ctx, c)
	if err != nil {
		return fmt.Errorf("chaos: %s: %w", f.kind, err)
	}
	t := &trial{began: time.Now(), settles: s.settles, delivery: s.delivery, fenced: s.fenced}
	if s.host != nil {
		t.victim = s.host.Contact()
	}
	c.meters.vitals.begin(t, s.tiles)
	c.show(f, s, t)
	if err := s.hit(ctx); err != nil {
		return fmt.Errorf("chaos: %s: it could not be broken: %w", f.kind, err)
	}
	for end := time.Now().Add(s.lasts); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(watchEvery) {
		if s.whileIll && len(c.meters.vitals.suffering(t, c.world)) == 0 {
			break
		}
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), healing)
	defer cancel()
	if s.heal != nil {
		if err := s.heal(bounded); err != nil {
			c.over(f, s, false, 0, 0) // the report says so even of a battle that was told to end
			return fmt.Errorf("chaos: %s: it could not be put right: %w", f.kind, err)
		}
	}
	c.meters.vitals.heal(t)
	c.mu.Lock()
	c.shown.Healed = t.healed.UnixMilli()
	c.mu.Unlock()
	return c.recover(f, s, t)
}

// recover waits until every tile that suffered is well, and every other has gone on since the healing.
func (c *chaos) recover(f fault, s *strike, t *trial) error {
	v := c.meters.vitals
	var detection, recovery time.Duration
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(watchEvery) {
		if len(v.suffering(t, c.world)) > 0 {
			continue
		}
		if recovery == 0 {
			detection, recovery = v.result(t)
			if s.recovery != nil {
				recovery = s.recovery()
			}
		}
		if _, all := v.committedSince(t.healed, c.world); all {
			c.over(f, s, true, detection, recovery)
			if n := v.late(t); n > 0 {
				return fmt.Errorf("chaos: %s: %s made %s to tiles that others had taken", f.kind, t.victim,
					count(n, "commit"))
			}
			return nil
		}
	}
	c.over(f, s, false, detection, recovery)
	stuck, _ := v.committedSince(t.healed, c.world)
	return fmt.Errorf("chaos: %s: %v later these tiles are not well: %s; and this one has not committed: %s", f.kind,
		patience, v.suffering(t, c.world), stuck)
}

// show tells the page that something was broken.
func (c *chaos) show(f fault, s *strike, t *trial) {
	shown := &spectator.Fault{Kind: f.kind, Means: f.means, System: s.system, Node: s.node, Host: t.victim,
		Suffer: s.tiles, Began: t.began.UnixMilli(), Lasts: s.lasts.Milliseconds()}
	if s.whileIll {
		shown.Lasts = 0
	}
	c.mu.Lock()
	c.sums.Faults++
	shown.ID = uint64(c.sums.Faults)
	c.shown, c.trial = shown, t
	c.mu.Unlock()
	e := spectator.Event{Kind: spectator.KindFault, Owner: t.victim, Fault: shown.ID,
		Text: f.kind + where(shown) + ": " + f.means}
	if len(s.tiles) == 1 {
		e.Tile = s.tiles[0]
	}
	c.meters.log.put(e)
	c.logger.Warn("chaos", "fault", f.kind, "number", shown.ID, "host", t.victim, "tiles", len(s.tiles))
}

// where says what a fault has hit.
func where(f *spectator.Fault) string {
	if f.Host+f.Node == "" {
		return ""
	}
	return " (" + f.Host + f.Node + ")" // one of them
}

// over tells that all is well again.
func (c *chaos) over(f fault, s *strike, recovered bool, detection, recovery time.Duration) {
	text := fmt.Sprintf("%s well again after %s", count(len(s.tiles), "tile"), seconds(recovery))
	switch {
	case !recovered:
		text = "not every tile is well again"
	case s.recovery != nil:
		text = "all that it held up went on after " + seconds(recovery)
	case len(s.tiles) == 0:
		text = "no tile missed a tick"
	case detection > 0:
		text += fmt.Sprintf(": noticed after %s, taken over in %s", seconds(detection), seconds(recovery-detection))
	case s.delivery:
		text = fmt.Sprintf("clients saw every tile again after %s", seconds(recovery))
	}
	c.mu.Lock()
	c.sums.add(f.kind, recovered, detection, recovery)
	c.trial, c.shown.Over, c.shown.Recovery, c.shown.Summary = nil, time.Now().UnixMilli(), ms(recovery), text
	e := spectator.Event{Kind: spectator.KindRecovered, Owner: c.shown.Host, Fault: c.shown.ID, Text: text}
	c.mu.Unlock()
	c.meters.log.put(e)
	c.logger.Info("chaos is over", "fault", f.kind, "number", e.Fault, "recovery", recovery, "detection", detection)
}

// status is what the page shows.
func (c *chaos) status() *spectator.Chaos {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &spectator.Chaos{Seed: c.options.seed, Faults: c.sums.Faults, Systems: c.systems()}
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
		lasts := time.Since(time.UnixMilli(f.Began))
		return fmt.Sprintf("  chaos %d: %s%s, %s", s.Faults, strings.ToUpper(f.Kind), where(f), seconds(lasts))
	default:
		return fmt.Sprintf("  chaos %d: %s, recovered in %.0f ms", s.Faults, f.Kind, f.Recovery)
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

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// chaosReport is what chaos broke, and how long the tiles that suffered took to be well.
type chaosReport struct {
	Seed        uint64                `json:"seed"`
	Faults      int                   `json:"faults"`
	Unrecovered int                   `json:"unrecovered"`
	Kinds       map[string]*chaosKind `json:"kinds"`
}

// chaosKind is all faults of one kind. Durations are in milliseconds: from the fault until the last of the tiles it
// hit was well.
type chaosKind struct {
	Count       int     `json:"count"`
	Recovery    float64 `json:"recovery_ms"` // on average
	RecoveryMax float64 `json:"recovery_max_ms"`
	Detection   float64 `json:"detection_ms,omitempty"` // of it, until another host claimed the tile; on average
	Takeover    float64 `json:"takeover_ms,omitempty"`  // and from there until the last was served; on average
	moved       int     // faults after which a tile changed hands
}

// add counts a fault that is over.
func (r *chaosReport) add(kind string, recovered bool, detection, recovery time.Duration) {
	k := r.Kinds[kind]
	if k == nil {
		k = &chaosKind{}
		r.Kinds[kind] = k
	}
	if !recovered {
		r.Unrecovered++
	}
	k.Count++
	k.Recovery += (ms(recovery) - k.Recovery) / float64(k.Count)
	k.RecoveryMax = max(k.RecoveryMax, ms(recovery))
	if detection > 0 {
		k.moved++
		k.Detection += (ms(detection) - k.Detection) / float64(k.moved)
		k.Takeover += (ms(recovery-detection) - k.Takeover) / float64(k.moved)
	}
}

// write adds the lines of a report for a person.
func (r *chaosReport) write(line func(name, format string, args ...any)) {
	line("faults", "%d, %d not recovered from; -seed %d", r.Faults, r.Unrecovered, r.Seed)
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		k := r.Kinds[kind]
		text := fmt.Sprintf("%d×, well after %.0f ms, at most %.0f ms", k.Count, k.Recovery, k.RecoveryMax)
		if k.moved > 0 {
			text += fmt.Sprintf(" (noticed after %.0f ms, taken over in %.1f ms)", k.Detection, k.Takeover)
		}
		line("  "+kind, "%s", text)
	}
}
