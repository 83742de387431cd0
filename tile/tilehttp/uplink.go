package tilehttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// maxQueued is the most bytes of intents that wait to be written on a connection. They wait only while the tile server
// takes nothing.
const maxQueued = 4 << 20

// expireInterval is how often a connection looks for calls whose callers have stopped to wait.
const expireInterval = 100 * time.Millisecond

// call is an intent on its way. It is in the uplink's table until it has an answer, and what takes it out gives it one.
type call struct {
	ctx      context.Context // of the caller
	tile     fence.TileID
	intent   []byte                   // encoded
	deadline time.Time                // of the caller; zero: none
	done     func(tile.Result, error) // called without the mutex

	// Guarded by the uplink's mutex.
	id      uint64
	written bool // it is part of a message that was given to the connection, perhaps not all of it
	left    bool // its caller has gone before it was written
}

// over says why the caller does not wait any more; nil: it does.
func (c *call) over(now time.Time) error {
	if !c.deadline.IsZero() && !now.Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(c.ctx)
}

// await waits for a connection as long as the caller waits, and otherwise says why it does not.
func (c *call) await(dialing <-chan struct{}) error {
	ctx := c.ctx
	if !c.deadline.IsZero() {
		limited, cancel := context.WithDeadline(ctx, c.deadline)
		defer cancel()
		ctx = limited
	}
	select {
	case <-dialing:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answers are given when the mutex is not held: a caller may look at the connection again.
type answers []settled

type settled struct {
	of *call
	tile.Result
	err error
}

func (a answers) give() {
	for i := range a {
		given := a[i]
		a[i] = settled{}
		given.of.done(given.Result, given.err)
	}
}

// uplink is a gateway's end of a connection to a tile server.
//
// What became of an intent when the connection breaks follows from written: the writer sets it before the first byte
// of a message can leave, so an intent without it was certainly not applied.
type uplink struct {
	*link
	contact string
	limit   int
	counts  *counters

	mu      sync.Mutex
	last    uint64
	queue   []*call // not written; those that have left are passed over
	bytes   int     // of the queue, without those that have left
	waiting map[uint64]*call
	retired bool // it takes no more calls, and ends with the last
	ended   bool

	// What belongs to run.
	served  bool         // the peer has sent a message
	answers []wireAnswer // of its last one, to be used again
	given   answers      // likewise

	stop context.CancelCauseFunc
}

var (
	errRetired  = errors.New("the connection takes no more intents")
	errFinished = errors.New("the last answer has come")
)

// run serves the connection until it ends, and returns why.
func (u *uplink) run(ctx context.Context) error {
	return u.serve(ctx, u.stop, func() error { return u.readAll(ctx) },
		func() error { return u.write(ctx, u.next) }, func() error { return u.expireAll(ctx) })
}

// submit queues a call. The errors say that nothing was sent: errRetired, or tile.ErrOverloaded.
func (u *uplink) submit(c *call) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ended || u.retired:
		return errRetired
	case len(u.waiting) >= u.limit:
		return fmt.Errorf("%d intents are under way to %s: %w", len(u.waiting), u.contact, tile.ErrOverloaded)
	case u.bytes+len(c.intent) > maxQueued:
		return fmt.Errorf("%d bytes of intents wait to be sent to %s: %w", u.bytes, u.contact, tile.ErrOverloaded)
	}
	u.last++
	c.id = u.last
	u.waiting[c.id] = c
	u.queue = append(u.queue, c)
	u.bytes += len(c.intent)
	u.signal()
	return nil
}

// leave answers a call whose caller has stopped to wait, unless it has an answer.
func (u *uplink) leave(c *call, why error) {
	var left answers
	u.mu.Lock()
	if u.waiting[c.id] == c {
		u.expire(c, why, &left)
		u.finishRetired()
	}
	u.mu.Unlock()
	left.give()
}

// expire takes a call whose caller has stopped to wait out of the table. It needs the mutex.
func (u *uplink) expire(c *call, why error, left *answers) {
	delete(u.waiting, c.id)
	outcome := fence.ErrUnknownOutcome
	if !c.written {
		outcome = fence.ErrNotApplied
		if !c.left {
			c.left = true
			u.bytes -= len(c.intent)
		}
	}
	*left = append(*left, settled{of: c, err: &UnavailableError{Contact: u.contact, Outcome: outcome, Err: why}})
}

// expireAll answers the calls whose callers have stopped to wait, until ctx ends.
func (u *uplink) expireAll(ctx context.Context) error {
	var left answers
	for wait.For(ctx, expireInterval) {
		left = left[:0]
		u.mu.Lock()
		now := time.Now()
		for _, c := range u.waiting {
			if why := c.over(now); why != nil {
				u.expire(c, why, &left)
			}
		}
		u.finishRetired()
		u.mu.Unlock()
		left.give()
	}
	return nil
}

// next makes a message of the calls in the queue.
func (u *uplink) next(message []byte) (_ []byte, more bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	message = append(message, intentsHead...)
	now, taken, sent := time.Now(), 0, 0
	for _, c := range u.queue {
		if len(message)+sentHead+len(c.intent)+len(messageTail) > maxMessage {
			more = true
			break
		}
		u.queue[taken] = nil
		taken++
		if c.left {
			continue
		}
		u.bytes -= len(c.intent)
		if c.over(now) != nil { // its caller is about to leave
			c.left = true
			continue
		}
		var within time.Duration
		if !c.deadline.IsZero() {
			within = c.deadline.Sub(now)
		}
		message = appendSent(message, c.id, within, c.intent)
		c.written, c.intent = true, nil
		sent++
	}
	u.queue = u.queue[taken:]
	if sent == 0 {
		return message[:0], more
	}
	u.counts.messages.Add(1)
	u.counts.intents.Add(uint64(sent))
	return append(message, messageTail...), more
}

// readAll takes answers until the connection ends. Its error is of the connection and no *fence.ArgumentError, which
// would say of each intent that waits that it is malformed.
func (u *uplink) readAll(ctx context.Context) error {
	for {
		b, err := u.receive(ctx)
		if err == nil {
			err = u.take(b)
		}
		if errors.Is(err, fence.ErrInvalidArgument) {
			return errors.New(err.Error())
		}
		if err != nil {
			return err
		}
	}
}

// take gives the answers of a message to their callers. Its error ends the connection.
func (u *uplink) take(b []byte) error {
	m, err := decodeAnswers(b, u.answers)
	if err != nil {
		return err
	}
	u.served, u.answers = true, m.Answers[:0]
	if m.Error != nil {
		return fmt.Errorf("the tile server could not read a message: %w",
			&fence.ArgumentError{Field: m.Error.Field, Value: m.Error.Value, Want: m.Error.Want})
	}
	u.given = u.given[:0]
	u.mu.Lock()
	u.retired = u.retired || m.Drain
	for i := range m.Answers {
		a := &m.Answers[i]
		c := u.waiting[a.ID]
		if c == nil || !c.written {
			continue // its caller has left
		}
		delete(u.waiting, a.ID)
		r, err := a.decode(u.contact, c.tile)
		u.given = append(u.given, settled{c, r, err})
	}
	u.finishRetired()
	u.mu.Unlock()
	u.given.give()
	return nil
}

// open reports whether the connection takes calls.
func (u *uplink) open() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.retired && !u.ended
}

// retire ends the connection when no call waits any more.
func (u *uplink) retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.retired = true
	u.finishRetired()
}

// finishRetired needs the mutex.
func (u *uplink) finishRetired() {
	if u.retired && len(u.waiting) == 0 {
		u.stop(errFinished)
	}
}

// end answers every call that waits, and returns how many of them were written.
func (u *uplink) end(cause error) (unknown int) {
	var left answers
	u.mu.Lock()
	u.ended = true
	for id, c := range u.waiting {
		delete(u.waiting, id)
		outcome := fence.ErrNotApplied
		if c.written {
			outcome = fence.ErrUnknownOutcome
			unknown++
		}
		left = append(left, settled{of: c, err: &UnavailableError{Contact: u.contact, Outcome: outcome, Err: cause}})
	}
	u.queue = nil
	u.mu.Unlock()
	left.give()
	return unknown
}
