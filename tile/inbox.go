package tile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
)

// inbox is where a processor's loop and other goroutines meet. They leave intents and calls there and read the status;
// everything else of a processor belongs to its loop alone.
type inbox struct {
	tile    fence.TileID
	contact string
	cfg     *Config

	inspections chan inspection
	drains      chan drainCall
	takeOvers   *takeOverCalls
	superseded  chan struct{} // closed on stand-down
	done        chan struct{} // closed when every submission has been answered

	mu     sync.Mutex // guards what follows
	ran    bool
	status Status
	queue  intentQueue
}

// inspection is a call of Inspect.
type inspection struct {
	f    func(Rules, fence.Position)
	done chan error // capacity 1
}

// drainCall is a call of Drain. The loop answers each that it takes.
type drainCall struct {
	successor string
	answer    chan error // capacity 1
}

func newInbox(tile fence.TileID, contact string, cfg *Config) *inbox {
	return &inbox{tile: tile, contact: contact, cfg: cfg, inspections: make(chan inspection),
		drains: make(chan drainCall), takeOvers: newTakeOverCalls(), superseded: make(chan struct{}),
		done: make(chan struct{}), queue: intentQueue{limit: cfg.QueueLimit},
		status: Status{Tile: tile, State: Idle, Contact: contact, Since: time.Now(), Durability: cfg.Durability}}
}

// begin reports whether this is the first call: a processor runs once.
func (d *inbox) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.ran
	d.ran = true
	return first
}

// read is Status.
func (d *inbox) read() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.status
	s.Queued = d.queue.waiting
	return s
}

// update changes the status.
func (d *inbox) update(f func(*Status)) {
	d.mu.Lock()
	f(&d.status)
	d.mu.Unlock()
}

// confirm notes that every replica has the history up to a position.
func (d *inbox) confirm(at fence.Position) {
	d.update(func(s *Status) {
		if s.Confirmed.Epoch < at.Epoch || s.Confirmed.Seq < at.Seq {
			s.Confirmed = at
		}
	})
}

// quarantined notes a quarantine: it is the answer to all that waits, or comes.
func (d *inbox) quarantined(e *QuarantinedError) {
	d.update(func(s *Status) {
		s.Quarantine = &QuarantinedError{Tile: e.Tile, Epoch: e.Epoch, Quarantine: e.Quarantine}
	})
}

// enter enters another state. A transition outside the diagram of State is a bug in this package, found by its tests,
// so it panics.
func (d *inbox) enter(to State, epoch fence.Epoch) {
	d.mu.Lock()
	from := d.status.State
	if from == to {
		d.mu.Unlock()
		return
	}
	if !slices.Contains(transitions[from], to) {
		d.mu.Unlock()
		panic(fmt.Sprintf("tile: transition from %s to %s", from, to))
	}
	d.status.State, d.status.Epoch, d.status.Since = to, epoch, time.Now()
	d.mu.Unlock()
	d.cfg.Logger.Info("tile state", "from", from, "to", to, "epoch", epoch)
	hook.Call(d.cfg.Hooks.Transition, TransitionInfo{Tile: d.tile, From: from, To: to, Epoch: epoch})
}

// leave leaves a call for the loop. The error says why the loop will not take it.
func leave[C any](ctx context.Context, d *inbox, calls chan<- C, call C) error {
	select {
	case calls <- call:
		return nil
	case <-d.done:
		return d.redirected()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// submit queues an intent until its caller has gone. The error says why it was not queued.
func (d *inbox) submit(caller context.Context, in Intent, answer func(Result, error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silent() {
		return d.redirect()
	}
	s := submission{intent: in, caller: caller, answer: answer}
	if in.ActionID != "" {
		s.came = time.Now()
	}
	if !d.queue.add(s) {
		return ErrOverloaded
	}
	return nil
}

// silent reports whether the processor answers nothing: it has ended, it follows, or it is an owner that redirects
// because the store has named a successor. d.mu is held.
func (d *inbox) silent() bool {
	select {
	case <-d.done:
		return true
	default:
	}
	s := &d.status
	return s.State == Following || s.State == Idle && d.cfg.Follow || s.Owner.Epoch > s.Epoch
}

// away is what the processor answers while it is silent; nil otherwise.
func (d *inbox) away() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silent() {
		return d.redirect()
	}
	return nil
}

// take takes at most n of the intents that wait, and drops those whose callers have gone. They count as waiting until
// they are requeued, or holds says that they are answered.
func (d *inbox) take(n int) []submission {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue.waiting == 0 {
		return nil
	}
	d.queue.sweep(time.Now())
	return d.queue.take(n)
}

// holds says how many of the submissions that were taken are not answered yet.
func (d *inbox) holds(n int) {
	d.mu.Lock()
	d.queue.taken = n
	d.mu.Unlock()
}

// requeue returns submissions to the front of the queue.
func (d *inbox) requeue(subs []submission) {
	d.mu.Lock()
	d.queue.requeue(subs)
	d.mu.Unlock()
}

// sweep drops the intents whose callers have gone.
func (d *inbox) sweep() {
	d.mu.Lock()
	d.queue.sweep(time.Now())
	d.mu.Unlock()
}

// sendAway redirects every intent that was never presented to the store. What was presented stays in the queue.
func (d *inbox) sendAway() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue.drop(func(s *submission) error {
		if s.open() {
			return nil
		}
		return d.redirect()
	})
}

// yield redirects clients to an owner that the store has named in a refusal, before the authority is asked. Epochs come
// from the authority alone and an old master knows no later ones, so a higher epoch was granted after this owner's. The
// redirect decides nothing: only intents that were never presented leave, and a process that does not own the tile
// redirects them in turn.
func (d *inbox) yield(to fence.Owner) {
	if to.Contact == "" || to.Contact == d.contact {
		return
	}
	d.update(func(s *Status) {
		if to.Epoch > s.Epoch {
			s.Owner = to
		}
	})
	if d.away() != nil {
		d.sendAway()
	}
}

// resume ends yield: the authority says that no other process has the tile, or the store has taken a batch.
func (d *inbox) resume() { d.update(func(s *Status) { s.Owner = fence.Owner{} }) }

// close ends the inbox: it answers every submission, those of the pending batch included, and every later call.
func (d *inbox) close(epoch fence.Epoch, successor fence.Owner, stoodDown bool, pending []submission) {
	d.update(func(s *Status) { s.Successor = successor })
	if stoodDown {
		d.enter(StoodDown, epoch)
		close(d.superseded)
	} else {
		d.enter(Stopped, epoch)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range pending {
		s.answer(Result{}, d.unresolved())
	}
	d.queue.drop(func(s *submission) error {
		if s.open() {
			return d.unresolved()
		}
		return d.redirect()
	})
	d.queue.taken = 0
	close(d.done)
}

// redirect is what a processor that does not own the tile answers: the owner as far as it knows, never itself; or that
// the tile is quarantined. d.mu is held.
func (d *inbox) redirect() error {
	if d.status.Quarantine != nil {
		return d.status.Quarantine
	}
	o := d.status.Successor
	if o.Contact == "" {
		o = d.status.Owner
	}
	if o.Contact == d.contact {
		return &RedirectError{Tile: d.tile}
	}
	return &RedirectError{Tile: d.tile, Epoch: o.Epoch, Contact: o.Contact}
}

// redirected is redirect for a caller that does not hold d.mu.
func (d *inbox) redirected() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.redirect()
}

// unresolved is the answer to an intent that was presented, and of which this processor cannot say whether it was
// committed. d.mu is held.
func (d *inbox) unresolved() error {
	s := d.status.Successor
	return &UnresolvedError{Tile: d.tile, Epoch: s.Epoch, Contact: s.Contact}
}
