package tile

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Rules is the game: it holds one tile's state and says what happens in it. A TileProcessor calls it
// from one goroutine, one method at a time.
//
// State changes only in Restore and Apply. Resolve decides and changes nothing, so a batch that the
// fence refuses leaves no trace, and the owner, its successor and every watcher fold the same events
// into the same state.
type Rules interface {
	// Restore replaces the state with the one Snapshot wrote; nil means a new, empty tile. An error stops
	// the processor before it has served anything.
	Restore(snapshot []byte) error

	// Resolve plays one tick: from the state and the intents queued since the last tick it returns the
	// events that happen, and one outcome per intent, in order; another number of them is a failure of the rules, and
	// nothing happens. It must not change the state. No events and no intents is a quiet tick. Intents whose outcome
	// is not one of the four are Rejected. What costs something must be rejected without an ActionID: it has not been
	// paid for.
	Resolve(tick fence.Tick, intents []Intent) (events [][]byte, outcomes []stream.Outcome)

	// Apply folds committed events into the state. It must give the same state everywhere; an error means
	// that the stream and the rules disagree, and stops the processor.
	Apply(tick fence.Tick, events [][]byte) error

	// Snapshot encodes the whole state. Equal states give equal bytes.
	Snapshot() ([]byte, error)
}

// Divided is implemented by Rules whose tile has areas (see fence.Area), so that a watcher can be sent what it sees and
// no more. The state of an area must follow from its own events: a ship that flies from one area to another leaves the
// first in one event, and enters the second, with all that is known of it, in another.
//
// What Snapshot returns, and Restore is given, is then a list of parts, one for each area: see fence.AppendPart. Apply
// is given a tick's events ordered by area, those of one area in the order of Resolve.
type Divided interface {
	// Area is the area that an event of Resolve belongs to; 0 is the whole tile, which every watcher sees.
	Area(event []byte) fence.Area
}

// TransferRules is implemented by Rules that decide about more than intents: whose entities travel to other tiles, that
// say why an intent has its outcome (Outputs.Why), or that ask how long the tile has slept (Inputs.Elapsed). Play is
// called instead of Resolve. Rules that let nothing in refuse each arrival; without a verdict it comes again.
//
// A game writes three branches: an entity leaves (its events take it out of the state, and a departure carries it), an
// entity arrives (its events put it in, or it is refused), and one comes back because it was refused. Delivery, order,
// repetitions and restarts are not its business: an entity that departs in a committed batch arrives once, or comes
// back once.
type TransferRules interface {
	Rules

	// Play plays one tick, as Resolve does: it decides and changes nothing.
	Play(tick fence.Tick, in Inputs) Outputs
}

// ErrRules means that the game's rules have failed. A *RulesError says how.
var ErrRules = errors.New("the game's rules have failed")

// ErrHangs is why a call of the rules has failed that did not return within Timeouts.RulesTimeout.
var ErrHangs = errors.New("the call does not return")

// RulesError is a call of a tile's Rules that panicked, or returned an error or what cannot be used. What becomes of
// the tile depends on the call:
//
//	Resolve, with an intent     the tile goes on; the intent alone is Rejected, and that is committed
//	Resolve, without one        the tile goes on; the tick has no events, and its intents wait
//	Resolve, without an end      the intents of the tick are Rejected, and that is committed; the processor ends
//	Sights, View                the tile goes on without what it looks at; a View begins again after 30 s
//	Snapshot                    a tile that serves goes on; its stream grows until a snapshot succeeds
//	Apply, Restore, without an  the processor ends if it serves or has claimed the tile, which is then quarantined; a
//	end                         follower waits
//	Apply, Restore              the processor ends: committed events cannot be folded, here or anywhere, until the
//	                            rules are repaired, or the tile is put back to a checkpoint
//
// Other tiles of the process are not affected.
type RulesError struct {
	Tile   fence.TileID
	Tick   fence.Tick
	Call   string  // the method of Rules, Inspect, New for their constructor, or View; Area counts as Resolve
	Intent *Intent // of Resolve: the one without which it does not fail; nil: it fails without any
	Err    error   // what was returned; of a panic, its value
	Stack  []byte  // of a panic; nil otherwise

	site string // where a panic came from
}

func (e *RulesError) Error() string {
	what := "failed"
	if e.Stack != nil {
		what = "panicked"
	}
	with := ""
	if e.Intent != nil {
		with = fmt.Sprintf(" with an intent of %q (action %q)", e.Intent.Actor, e.Intent.ActionID)
	}
	return fmt.Sprintf("tile %s: tick %d: %s %s%s: %v", e.Tile, e.Tick, e.Call, what, with, e.Err)
}

// Is matches ErrRules.
func (e *RulesError) Is(target error) bool { return target == ErrRules }

// Unwrap gives what the rules returned.
func (e *RulesError) Unwrap() error { return e.Err }

// MakeRules calls a constructor of rules. If it panics, the error is a *RulesError.
func MakeRules(id fence.TileID, construct func(fence.TileID) (Rules, error)) (rules Rules, err error) {
	g := &guarded{tile: id}
	defer g.judge("New", &err)
	return construct(id)
}

// guarded calls the rules so that a panic becomes an error.
type guarded struct {
	rules Rules
	tile  fence.TileID
	tick  fence.Tick // of the last call that had one

	travels  TransferRules // the rules, if they are
	announce func() []byte // the first event of a tick, if there is one; nil: there is none
}

// judge makes a *RulesError of what a call panicked with or returned. It must be deferred itself.
func (g *guarded) judge(call string, err *error) {
	v := recover()
	switch {
	case v != nil:
		cause, ok := v.(error)
		if !ok {
			cause = fmt.Errorf("%v", v)
		}
		*err = &RulesError{Tile: g.tile, Tick: g.tick, Call: call, Err: cause, Stack: debug.Stack(), site: panicSite()}
	case *err != nil:
		*err = &RulesError{Tile: g.tile, Tick: g.tick, Call: call, Err: *err}
	}
}

// panicSite is the line that panicked, for a deferred function that has recovered: the first below package runtime.
func panicSite() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	panicked := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		panicked = panicked || f.Function == "runtime.gopanic"
		if panicked && !inRuntime || !more {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}

// call calls another method of the game's. Its error is a *RulesError.
func (g *guarded) call(name string, f func() error) (err error) {
	defer g.judge(name, &err)
	return f()
}

// Restore is that of the rules.
func (g *guarded) Restore(snapshot []byte) (err error) {
	defer g.judge("Restore", &err)
	return g.rules.Restore(snapshot)
}

// Apply is that of the rules.
func (g *guarded) Apply(tick fence.Tick, events [][]byte) (err error) {
	g.tick = tick
	defer g.judge("Apply", &err)
	return g.rules.Apply(tick, events)
}

// Snapshot is that of the rules.
func (g *guarded) Snapshot() (blob []byte, err error) {
	defer g.judge("Snapshot", &err)
	return g.rules.Snapshot()
}

// Divided reports whether the tile has areas.
func (g *guarded) Divided() bool {
	_, ok := g.rules.(Divided)
	return ok
}

// resolve is Resolve or Play, with each event in its area: it fills a batch and outputs that are empty.
func (g *guarded) resolve(tick fence.Tick, in *Inputs, b *stream.Batch, d *Outputs) (err error) {
	g.tick = tick
	defer g.judge("Resolve", &err)
	if g.travels != nil {
		*d = g.travels.Play(tick, *in)
	} else {
		d.Events, d.Outcomes = g.rules.Resolve(tick, in.Intents)
		if len(in.Arrivals) > 0 {
			no := []Verdict{{Refused: "the rules of this tile take no arrivals"}}
			d.Verdicts = slices.Repeat(no, len(in.Arrivals))
		}
	}
	if len(d.Outcomes) != len(in.Intents) {
		return fmt.Errorf("it returned %d outcomes for %d intents, want one for each", len(d.Outcomes),
			len(in.Intents))
	}
	b.Events, b.Departures = d.Events, d.Departures
	if g.announce != nil {
		if event := g.announce(); len(event) > 0 {
			b.Events = append([][]byte{event}, b.Events...)
		}
	}
	if divided, ok := g.rules.(Divided); ok {
		b.Divide(divided.Area)
	}
	return nil
}

// ErrQuarantined means: the tile's history cannot be folded by the game's rules, and no process runs it until an
// operator has decided (tilectl quarantine). A *QuarantinedError says why. Nothing was queued; try again later.
var ErrQuarantined = errors.New("tile is quarantined")

// QuarantinedError is a tile that is quarantined. The Quarantine is zero in an answer that came over a network.
type QuarantinedError struct {
	Tile       fence.TileID
	Epoch      fence.Epoch // of the quarantine
	Quarantine fence.Quarantine
	Err        error // of the processor that set it: the *RulesError; else nil
}

func (e *QuarantinedError) Error() string {
	if e.Quarantine.By == "" {
		return fmt.Sprintf("tile %s: %v", e.Tile, ErrQuarantined)
	}
	return fmt.Sprintf("tile %s: %v: %s", e.Tile, ErrQuarantined, e.Quarantine)
}

// Is matches ErrQuarantined.
func (e *QuarantinedError) Is(target error) bool { return target == ErrQuarantined }

// Unwrap gives the failure of the rules.
func (e *QuarantinedError) Unwrap() error { return e.Err }
