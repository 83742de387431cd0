// Package overload keeps an actor at its capacity when more is asked of it. A Control hands out turns, of which there
// are as many as the actor can use at once, and keeps those that wait for one in a room of bounded size. It knows that
// the actor is late from how long they wait, not from the processor: if for a whole interval nothing had its turn
// within a target, the actor has more to do than it can (CoDel, RFC 8289). Then the room holds only what has its turn
// within the target; otherwise, so that a burst passes, what has it within four times the target. All else is refused
// at once, with the time after which to come back.
//
// What is refused is what hurts least: first what is dead, since its caller has left or its deadline is over, then the
// lowest class, then the newest of the holder that has most waiting. A holder that has had little goes on being served.
package overload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Class is how important a request is. A lower one has no turn while a higher one waits, and leaves the room first.
type Class uint8

// The classes, the most important first.
const (
	Owed Class = iota // paid actions, and what was promised: refused only if the room is full of it
	Move
	Join // new connections
	classes
)

// Bounds of what a refused caller is told.
const (
	leastAfter = 250 * time.Millisecond
	mostAfter  = 10 * time.Second
)

// intervals is the length of an interval in targets. It should not be below a tick: what comes with one comes at once,
// and may wait for a part of it.
const intervals = 10

// burst is for how long the last request in the room of an actor that is not late may have to wait, in targets.
const burst = 4

// sweepPause is how long a full room waits between two searches for what is dead.
const sweepPause = 20 * time.Millisecond

// ErrDead means that a request got no turn because its caller had left, or its deadline was over.
var ErrDead = errors.New("the request is too old")

// RefusedError is a request that got no turn because the actor is late.
type RefusedError struct {
	After time.Duration // when to come back, at the earliest; the client adds a random part of it
}

func (e *RefusedError) Error() string { return fmt.Sprintf("overloaded: come back after %v", e.After) }

// Request asks for a turn.
type Request struct {
	Holder   string // whose share it is of
	Class    Class
	Deadline time.Time   // after which the caller needs no answer; zero: none
	Gone     func() bool // reports that the caller has left; it must not block. Nil: it does not leave.
}

func (r *Request) dead(now time.Time) bool {
	return !r.Deadline.IsZero() && now.After(r.Deadline) || r.Gone != nil && r.Gone()
}

// Control hands out turns. All methods are safe for concurrent use. The times that they take must not decrease by more
// than a scheduler's delay.
type Control struct {
	turns  int
	room   int
	target time.Duration

	mu     sync.Mutex
	taken  int // turns
	lines  [classes]line
	size   int // of all lines
	swept  time.Time
	waits  delay // for a turn
	work   delay // what Observe is told
	gap    gap
	shares shares
	pause  pause
	counts struct{ refused, dead, late uint64 }
}

// New returns the control of an actor that can use so many turns at once, and has room for so many requests that wait.
func New(turns, room int, target time.Duration) *Control {
	return &Control{turns: turns, room: room, target: target}
}

// Submit asks for a turn. It calls start, at once or in a later call of Submit or Leave: with nil when the request has
// a turn, which ends with Leave; with a *RefusedError or ErrDead if it gets none. start must not block, nor call Leave
// before it has returned.
func (c *Control) Submit(now time.Time, r Request, start func(error)) {
	e := &entry{Request: r, came: now, start: start}
	var done answers
	c.mu.Lock()
	c.waits.look(c, now)
	if c.makeRoom(now, e, &done) {
		c.lines[r.Class].add(e)
		c.size++
	} else {
		c.refuse(now, e, &done)
	}
	c.admit(now, &done)
	c.mu.Unlock()
	done.give()
}

// Leave ends a turn.
func (c *Control) Leave(now time.Time) {
	var done answers
	c.mu.Lock()
	c.taken--
	c.admit(now, &done)
	c.mu.Unlock()
	done.give()
}

// Enter is Submit for a caller that waits, until ctx ends at most. The caller calls Leave if there is no error. Errors:
// a *RefusedError; ErrDead; ctx's.
func (c *Control) Enter(ctx context.Context, r Request) error {
	const waiting, started, left = 0, 1, 2
	var state atomic.Int32
	answer := make(chan error, 1)
	r.Gone = func() bool { return ctx.Err() != nil }
	c.Submit(time.Now(), r, func(err error) {
		if state.CompareAndSwap(waiting, started) {
			answer <- err
		} else if err == nil {
			go func() { c.Leave(time.Now()) }() // Submit or Leave has not returned yet
		}
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	if !state.CompareAndSwap(waiting, left) {
		return <-answer
	}
	return context.Cause(ctx)
}

// Observe notes how long something else has waited that goes before all requests. While that is late, there is one
// turn.
func (c *Control) Observe(now time.Time, waited time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work.look(c, now)
	c.work.note(waited)
}

// Full says after which time a new holder is to come back, if it would be refused a turn now; otherwise zero.
func (c *Control) Full(now time.Time, class Class) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(now)
	ahead := 0
	for k := range class + 1 {
		ahead += c.lines[k].size
	}
	if ahead < c.allowed(class) {
		return 0
	}
	c.counts.refused++
	return c.pause.refused(now, c.interval())
}

// Stats are what a Control holds now and has done.
type Stats struct {
	Late    uint64        // intervals in which the actor was late, since the beginning
	Waiting int           // requests
	Delay   time.Duration // that nothing was below, in the last interval
	Refused uint64        // requests since the beginning
	Dead    uint64        // requests that were too old, likewise
}

// Stats returns the figures of now.
func (c *Control) Stats(now time.Time) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(now)
	return Stats{Late: c.counts.late, Waiting: c.size, Delay: max(c.waits.last, c.work.last), Refused: c.counts.refused,
		Dead: c.counts.dead}
}

func (c *Control) interval() time.Duration { return intervals * c.target }

func (c *Control) late() bool { return c.waits.late || c.work.late }

func (c *Control) look(now time.Time) {
	c.waits.look(c, now)
	c.work.look(c, now)
}

// allowed is how many requests may wait when another one comes.
func (c *Control) allowed(class Class) int {
	within := burst * c.target
	if c.late() {
		within = c.target
	}
	most, known := c.gap.times(within, c.turns)
	if class == Owed || !known && !c.late() {
		return c.room
	}
	return min(c.room, most)
}

// makeRoom takes from the room what has to leave for a request, and reports whether that is enough.
func (c *Control) makeRoom(now time.Time, e *entry, done *answers) bool {
	most := c.allowed(e.Class)
	if c.late() && c.shares.modest(e.Holder) {
		most = min(c.room, 2*most)
	}
	if c.size < most {
		return true
	}
	if now.Sub(c.swept) >= sweepPause {
		c.sweep(now, done)
	}
	if c.size < most {
		return true
	}
	for k := classes - 1; k > e.Class; k-- {
		if heaviest := c.lines[k].heaviest(); heaviest != nil {
			c.evict(now, heaviest, done)
			return c.size < c.room
		}
	}
	own := &c.lines[e.Class]
	if heaviest := own.heaviest(); heaviest != nil && own.held(heaviest.Holder) >= own.held(e.Holder)+2 {
		c.evict(now, heaviest, done)
		return c.size < c.room
	}
	return false
}

func (c *Control) evict(now time.Time, e *entry, done *answers) {
	c.lines[e.Class].remove(e)
	c.size--
	c.refuse(now, e, done)
}

func (c *Control) refuse(now time.Time, e *entry, done *answers) {
	c.counts.refused++
	c.waits.refused++
	done.add(e, &RefusedError{After: c.pause.refused(now, c.interval())})
}

// sweep drops what is dead.
func (c *Control) sweep(now time.Time, done *answers) {
	c.swept = now
	for k := range c.lines {
		for _, e := range c.lines[k].dead(now) {
			c.size--
			c.counts.dead++
			done.add(e, ErrDead)
		}
	}
}

// admit gives away the turns that are free.
func (c *Control) admit(now time.Time, done *answers) {
	turns := c.turns
	if c.work.look(c, now); c.work.late {
		turns = 1
	}
	for c.size > 0 && c.taken < turns {
		e := c.next()
		waited := now.Sub(e.came)
		c.size--
		switch {
		case e.dead(now):
			c.counts.dead++
			done.add(e, ErrDead)
			continue
		case c.waits.late && e.Class != Owed && waited > 2*c.target: // it came before the room became small
			c.refuse(now, e, done)
			continue
		}
		c.waits.look(c, now)
		// What has its turn now may have gone before others.
		c.waits.note(max(waited, time.Duration(float64(c.size)*c.gap.mean)))
		c.gap.note(e.came, now)
		c.shares.count(e.Holder)
		c.taken++
		c.pause.started(now, c.interval())
		done.add(e, nil)
	}
}

// next takes the request whose turn it is out of its line.
func (c *Control) next() *entry {
	for k := range c.lines {
		if e := c.lines[k].next(); e != nil {
			return e
		}
	}
	return nil
}
