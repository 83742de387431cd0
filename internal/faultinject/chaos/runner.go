package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait"
)

// Runner injects one fault after another into a Target: it breaks something, repairs it, waits until every tile that
// the fault hit has recovered, and times that. A seed gives the same faults in the same order.
type Runner struct {
	Target
	cfg  Config
	rng  *rand.Rand
	deck []Fault // kinds still to come before any is repeated
	all  []Fault

	mu     sync.Mutex
	now    *Injected // the one under way, or the last
	outage *outage   // of the one under way; nil between two
	sums   Report
}

// Config is how a Runner injects faults. Hooks may be nil; they are called in the goroutine of Run.
type Config struct {
	Seed   uint64
	Every  time.Duration  // between two faults, at least
	Faults []Fault        // besides those that the parts of the Target allow
	Began  func(Injected) // a fault is about to be injected
	Ended  func(Injected) // all tiles have recovered, or did not in time
	Logger *slog.Logger   // nil discards
}

// Fault is one kind of Fault.
type Fault struct {
	faultinject.Kind
	// Choose picks what to break, and breaks nothing yet. ErrNotNow: there is nothing to break at the moment.
	Choose func(ctx context.Context, r *Runner) (*Injection, error)
}

// ErrNotNow is the answer of a fault that finds nothing to break.
var ErrNotNow = errors.New("nothing to break")

// Injection is one thing to be broken, and how to repair it.
type Injection struct {
	Host         Host   // that suffers, or nil
	System, Node string // that suffers; see System
	Tiles        []fence.TileID
	Lasts        time.Duration // until it is repaired; zero: repair at once
	Inject       func(ctx context.Context) error
	Repair       func(ctx context.Context) error // nil: nothing to do
	UntilWell    bool                            // repair as soon as the tiles have recovered, if that is sooner
	Settles      time.Duration                   // commits so soon after the beginning were under way before it
	Delivery     bool                            // tiles have recovered when clients see them again
	Fenced       bool                            // the host must commit nothing to tiles that others have taken
	Recovered    func() time.Duration            // of what no tile shows, once it is repaired; nil: tiles show it
}

// Injected is a fault that was injected. Zero times have not come yet.
type Injected struct {
	faultinject.Kind
	ID                   uint64 // from 1
	Host                 string // contact of the host that suffers; may be empty
	System, Node         string // that suffer; may be empty
	Tiles                []fence.TileID
	Began, Healed, Ended time.Time
	Lasts                time.Duration // how long it is meant to last; zero: as long as it takes
	Recovery             time.Duration // from the beginning until the last tile had recovered
	Summary              string        // one sentence about the recovery, once it has ended
}

// Where says what the fault has hit, in brackets; nothing if that is the whole of a system.
func (i *Injected) Where() string {
	switch {
	case i.Host+i.Node == "":
		return ""
	case i.Host != "" && i.Node != "":
		return " (" + i.Host + " and " + i.Node + ")"
	}
	return " (" + i.Host + i.Node + ")" // one of them
}

// Bounds of one fault, generous: on a machine that is short of processors the nodes of a cluster suspect each other
// for a long time.
const (
	patience   = 2 * time.Minute        // for every tile to recover after the repair
	repairing  = 3 * time.Minute        // for the repair itself: a Redis Cluster has to agree
	pause      = 700 * time.Millisecond // between two faults, at least
	watchEvery = 10 * time.Millisecond
)

// New returns a runner of all faults that the parts of a target allow.
func New(t Target, cfg *Config) *Runner {
	r := &Runner{Target: t, cfg: *cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0xc4a05)),
		sums: Report{Seed: cfg.Seed, Kinds: map[string]*KindReport{}}}
	if r.cfg.Logger == nil {
		r.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r.all = append(processFaults(), cfg.Faults...)
	if t.Throttle != nil {
		r.all = append(r.all, throttled())
	}
	if t.LoseTile != nil {
		r.all = append(r.all, Fault{faultinject.CoordinationLost, loseTiles})
	}
	if t.Servers != nil {
		r.all = append(r.all, serverFaults()...)
	}
	return r
}

// Run injects faults until ctx ends; it repairs the last one before it returns. A tile that does not recover is an
// error.
func (r *Runner) Run(ctx context.Context) error {
	next := time.Now().Add(r.cfg.Every)
	for {
		if !wait.For(ctx, max(time.Until(next), pause)) {
			return nil
		}
		next = time.Now().Add(r.cfg.Every)
		if err := r.inject(ctx, r.draw()); err != nil && !errors.Is(err, ErrNotNow) {
			return err
		}
	}
}

// draw picks the next kind of Fault: each comes once before any comes again.
func (r *Runner) draw() Fault {
	if len(r.deck) == 0 {
		r.deck = slices.Clone(r.all)
		r.rng.Shuffle(len(r.deck), func(i, j int) { r.deck[i], r.deck[j] = r.deck[j], r.deck[i] })
	}
	f := r.deck[0]
	r.deck = r.deck[1:]
	return f
}

// Once injects a fault of the kind with a title, or of the next kind if it is empty, repairs it, and waits until all
// tiles have recovered. It returns what the report says of that kind.
func (r *Runner) Once(ctx context.Context, title string) (KindReport, error) {
	if title != "" {
		r.deck = slices.DeleteFunc(slices.Clone(r.all), func(f Fault) bool { return f.Title != title })
		if len(r.deck) == 0 {
			return KindReport{}, fmt.Errorf("chaos: there is no fault %q", title)
		}
	}
	f := r.draw()
	err := r.inject(ctx, f)
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.sums.Kinds[f.Title]; k != nil {
		return *k, err
	}
	return KindReport{}, err
}

// inject injects a fault, repairs it, and waits until all is well. A tile that does not recover is an error.
func (r *Runner) inject(ctx context.Context, f Fault) error {
	if ctx.Err() != nil {
		return nil
	}
	s, err := f.Choose(ctx, r)
	if err != nil {
		return fmt.Errorf("chaos: %s: %w", f.Title, err)
	}
	o := &outage{began: time.Now(), settles: s.Settles, delivery: s.Delivery, fenced: s.Fenced}
	if s.Host != nil {
		o.victim = s.Host.Contact()
	}
	r.Tracker.begin(o, s.Tiles)
	r.begin(f, s, o)
	if err := s.Inject(ctx); err != nil {
		return fmt.Errorf("chaos: %s: it could not be injected: %w", f.Title, err)
	}
	for end := time.Now().Add(s.Lasts); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(watchEvery) {
		if s.UntilWell && len(r.Tracker.suffering(o, r.Tiles)) == 0 {
			break
		}
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), repairing)
	defer cancel()
	if s.Repair != nil {
		if err := s.Repair(bounded); err != nil {
			r.end(f, s, false, 0, 0) // the report says so even of a deployment that ends
			return fmt.Errorf("chaos: %s: it could not be repaired: %w", f.Title, err)
		}
	}
	r.Tracker.heal(o)
	r.mu.Lock()
	r.now.Healed = o.healed
	r.mu.Unlock()
	return r.recover(f, s, o)
}

// recover waits until every tile that suffered has recovered, and every other has committed since the repair.
func (r *Runner) recover(f Fault, s *Injection, o *outage) error {
	var detection, recovery time.Duration
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(watchEvery) {
		if len(r.Tracker.suffering(o, r.Tiles)) > 0 {
			continue
		}
		if recovery == 0 {
			detection, recovery = r.Tracker.result(o)
			if s.Recovered != nil {
				recovery = s.Recovered()
			}
		}
		if _, all := r.Tracker.committedSince(o.healed, r.Tiles); all {
			r.end(f, s, true, detection, recovery)
			if n := r.Tracker.late(o); n > 0 {
				return fmt.Errorf("chaos: %s: %s made %s to tiles that others had taken", f.Title, o.victim,
					Count(n, "commit"))
			}
			return nil
		}
	}
	r.end(f, s, false, detection, recovery)
	stuck, _ := r.Tracker.committedSince(o.healed, r.Tiles)
	return fmt.Errorf("chaos: %s: %v later these tiles have not recovered: %s; and this one has not committed: %s",
		f.Title, patience, r.Tracker.suffering(o, r.Tiles), stuck)
}

// begin notes that a fault is about to be injected.
func (r *Runner) begin(f Fault, s *Injection, o *outage) {
	now := &Injected{Kind: f.Kind, Host: o.victim, System: s.System, Node: s.Node, Tiles: s.Tiles, Began: o.began,
		Lasts: s.Lasts}
	if s.UntilWell {
		now.Lasts = 0
	}
	r.mu.Lock()
	r.sums.Faults++
	now.ID = uint64(r.sums.Faults)
	r.now, r.outage = now, o
	r.mu.Unlock()
	if r.cfg.Began != nil {
		r.cfg.Began(*now)
	}
	r.cfg.Logger.Warn("chaos", "fault", f.Title, "number", now.ID, "host", now.Host, "tiles", len(s.Tiles))
}

// end notes that all tiles have recovered, or did not in time.
func (r *Runner) end(f Fault, s *Injection, recovered bool, detection, recovery time.Duration) {
	text := fmt.Sprintf("%s well again after %s", Count(len(s.Tiles), "tile"), Seconds(recovery))
	switch {
	case !recovered:
		text = "not every tile is well again"
	case s.Recovered != nil:
		text = "all that it held up went on after " + Seconds(recovery)
	case len(s.Tiles) == 0:
		text = "no tile missed a tick"
	case detection > 0:
		text += fmt.Sprintf(": noticed after %s, taken over in %s", Seconds(detection), Seconds(recovery-detection))
	case s.Delivery:
		text = fmt.Sprintf("clients saw every tile again after %s", Seconds(recovery))
	}
	r.mu.Lock()
	r.sums.add(f.Title, recovered, detection, recovery)
	r.outage, r.now.Ended, r.now.Recovery, r.now.Summary = nil, time.Now(), recovery, text
	now := *r.now
	r.mu.Unlock()
	if r.cfg.Ended != nil {
		r.cfg.Ended(now)
	}
	r.cfg.Logger.Info("chaos is over", "fault", f.Title, "number", now.ID, "recovery", recovery, "detection", detection)
}

// Now returns the fault under way, or the last one, with the tiles that have not recovered yet, and how many faults
// there have been. It is nil before the first.
func (r *Runner) Now() (now *Injected, faults int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		return nil, r.sums.Faults
	}
	copied := *r.now
	copied.Tiles = []fence.TileID{}
	if r.outage != nil {
		copied.Tiles = r.Tracker.suffering(r.outage, r.Target.Tiles)
	}
	return &copied, r.sums.Faults
}

// Line is the runner's part of a status line.
func (r *Runner) Line() string {
	switch now, faults := r.Now(); {
	case now == nil:
		return "  chaos: calm"
	case now.Ended.IsZero():
		return fmt.Sprintf("  chaos %d: %s%s, %s", faults, strings.ToUpper(now.Title), now.Where(),
			Seconds(time.Since(now.Began)))
	default:
		return fmt.Sprintf("  chaos %d: %s, recovered in %.0f ms", faults, now.Title, ms(now.Recovery))
	}
}

// Report is the sum of all faults so far. Call it when Run has returned.
func (r *Runner) Report() *Report { return &r.sums }
