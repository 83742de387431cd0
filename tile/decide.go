package tile

import (
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// resolve asks the rules for the tick's events and forms the batch; nil if none is needed. took is how long they took.
func (o *tileOwner) resolve(subs []submission) (b *pendingBatch, took time.Duration) {
	left := subs
	if o.stalled() {
		b = o.quiet()
	} else {
		o.border.sight.look()
		o.offered = o.border.offer()
		b, left, took = o.decide(subs)
		o.border.offered(o.offered)
	}
	o.inbox.requeue(left)
	o.inbox.holds(len(subs) - len(left))
	return b, took
}

// decide plays a tick with as many of the intents as it can, in their order, and returns those that are left for the
// next one. If the events do not fit into one batch, the last intents wait: see portion. An intent that makes the rules
// fail, or whose events alone do not fit, is rejected: its sender would send it again, to this owner and the next, and
// each would fail. If the rules fail without any intent, the tick has no events, and the intents wait.
func (o *tileOwner) decide(subs []submission) (b *pendingBatch, left []submission, took time.Duration) {
	first := time.Now()
	var before time.Duration // the attempt that counts
	for n := len(subs); n > 0; before = time.Since(first) {
		b, err := o.attempt(subs[:n], nil)
		if err == nil {
			took = time.Since(first)
			o.portion.fitted(n, took-before, o.budget())
			return b, subs[n:], took
		}
		if n > 1 && !errors.Is(err, ErrRules) {
			n = o.portion.reduced(n, tooLong(err), fence.MaxPayload)
			continue
		}
		examined, bad := o.culprits(subs[:n])
		if b, err = o.attempt(subs[:examined], bad); err == nil {
			return b, subs[examined:], time.Since(first)
		}
		n /= 2 // they fail only together; or the tick does without any
	}
	b, err := o.attempt(nil, nil)
	took = time.Since(first)
	if err != nil {
		o.resolveFailed(err, nil)
		return o.quiet(), subs, took
	}
	o.portion.fitted(0, took-before, o.budget())
	if b == nil {
		o.played = first
	}
	return b, subs, took
}

// budget is how long the rules may take for a tick.
func (o *tileOwner) budget() time.Duration {
	return time.Duration(busy * float64(o.cfg.MaxDilation) * float64(o.cfg.TickInterval))
}

// tooLong is how many bytes a batch would have that cannot be formed; 0 if that is not why.
func tooLong(err error) int {
	if e, ok := errors.AsType[*fence.ArgumentError](err); ok && e.Field == "batch" {
		n, _ := e.Value.(int)
		return n
	}
	return 0
}

// attempt asks the rules for the events of a tick with those of the intents that are not bad, and forms the batch; nil
// if none is needed. If that fails, and without the intents too, the offer is at fault.
func (o *tileOwner) attempt(subs []submission, bad map[int]bool) (*pendingBatch, error) {
	b, err := o.try(subs, bad, o.offered)
	if err == nil || o.offered.Examined || o.offered.Empty() {
		return b, err
	}
	o.sift(func(f *transfer.Offer) error {
		_, err := o.try(nil, nil, f)
		return err
	})
	return o.try(subs, bad, o.offered)
}

// try is attempt with an offer.
func (o *tileOwner) try(subs []submission, bad map[int]bool, f *transfer.Offer) (*pendingBatch, error) {
	in := &o.border.inputs
	in.Intents, in.Arrivals, in.Returns = make([]Intent, 0, len(subs)-len(bad)), nil, nil
	for i := range subs {
		if !bad[i] {
			in.Intents = append(in.Intents, subs[i].intent)
		}
	}
	inputs(f, in)
	in.UnderWay = o.history.Transfers.UnderWay()
	batch, d := &o.batch, &o.outputs
	*batch, *d = stream.Batch{}, Outputs{}
	if err := o.resolver.resolve(in, batch, d); err != nil {
		return nil, err
	}
	crossed, err := decided(f, d, batch)
	if err == nil {
		err = o.border.checkRoom(d.Departures)
	}
	if err != nil {
		return nil, &RulesError{Tile: o.tile, Tick: o.history.Tick, Call: "Play", Err: err}
	}
	if batch.Len() == 0 && len(subs) == 0 && o.mayRest() {
		return nil, nil
	}
	if len(bad) > 0 {
		d.Outcomes = spread(d.Outcomes, len(subs), bad, stream.Rejected)
		d.Why = spread(d.Why, len(subs), bad, whyFailed)
	}
	b, err := o.form(subs, *batch, d)
	if err == nil {
		b.crossed, b.offered, b.asked = crossed, f, true
	}
	return b, err
}

// whyFailed is said to the sender of an intent that makes the rules fail.
const whyFailed = "the tile's rules failed with this intent"

// spread gives each of n intents what is its own: to the good ones what the rules have said of them, in order.
func spread[T any](said []T, n int, bad map[int]bool, ofBad T) []T {
	all := make([]T, n)
	for i := range all {
		if bad[i] {
			all[i] = ofBad
		} else if len(said) > 0 {
			all[i], said = said[0], said[1:]
		}
	}
	return all
}

// culprits finds, and reports, the intents with which a tick fails by themselves, among the first that could be
// examined within a tick interval: at least one is.
func (o *tileOwner) culprits(subs []submission) (examined int, bad map[int]bool) {
	bad = map[int]bool{}
	until := time.Now().Add(o.cfg.TickInterval)
	var search func(from, to int)
	search = func(from, to int) {
		if examined > 0 && time.Now().After(until) {
			return
		}
		_, err := o.attempt(subs[from:to], nil)
		switch {
		case err == nil:
			examined = to
		case to-from == 1:
			o.resolveFailed(err, &subs[from].intent)
			bad[from], examined = true, to
		default:
			middle := (from + to) / 2
			search(from, middle)
			if examined == middle {
				search(middle, to)
			}
		}
	}
	search(0, len(subs))
	return examined, bad
}

// sift takes out of the offer what makes the rules fail by itself, or what does not fit into a batch. ask asks them
// about an offer without any intent. It takes as long as a tick at most, and leaves what it has not examined for the
// next one.
func (o *tileOwner) sift(ask func(*transfer.Offer) error) {
	o.offered.Examined = true
	until := time.Now().Add(o.cfg.TickInterval)
	for {
		err := ask(o.offered)
		switch n := o.offered.Items(); {
		case err == nil, n == 0:
			return
		case !errors.Is(err, ErrRules):
			o.offered = o.offered.First(n / 2)
			continue
		}
		good, bad := 0, o.offered.Items() // the first good ones pass, the first bad ones fail
		for bad-good > 1 && time.Now().Before(until) {
			middle := (good + bad) / 2
			if failed := ask(o.offered.First(middle)); failed != nil {
				bad, err = middle, failed
			} else {
				good = middle
			}
		}
		if bad-good > 1 {
			o.offered = o.offered.First(good)
			return
		}
		if ask(o.offered.First(0)) != nil { // they fail without anything
			o.offered = o.offered.First(0)
			return
		}
		o.resolveFailed(err, nil)
		o.offered.Blame(bad-1, "the rules fail with it")
	}
}

// quiet is the batch of a tick without events and intents; nil if none is needed.
func (o *tileOwner) quiet() *pendingBatch {
	if o.mayRest() {
		return nil
	}
	b, err := o.form(nil, stream.Batch{}, &Outputs{})
	if err != nil { // a batch of nothing fits
		panic(err)
	}
	return b
}
