package tilehttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// maxQueued is the most bytes of intents that wait to be written on a connection. They wait only while the tile server
// takes nothing.
const maxQueued = 4 << 20

// call is an intent on its way.
type call struct {
	tile     fence.TileID
	intent   []byte    // encoded
	deadline time.Time // of the caller; zero: none
	answered chan result

	// Guarded by the uplink's mutex.
	id      uint64
	written bool // it is part of a message that was given to the connection, perhaps not all of it
	left    bool // its caller has gone before it was written
}

type result struct {
	tile.Result
	err error
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

	stop context.CancelCauseFunc
}

var (
	errRetired  = errors.New("the connection takes no more intents")
	errFinished = errors.New("the last answer has come")
)

// run serves the connection until it ends, and returns why.
func (u *uplink) run(ctx context.Context) error {
	return u.serve(ctx, u.stop, func() error { return u.write(ctx, u.next) }, func() error { return u.readAll(ctx) })
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

// leave withdraws a call whose caller has stopped to wait, and returns its result.
func (u *uplink) leave(c *call) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.waiting, c.id)
	u.finishRetired()
	if c.written {
		return fence.ErrUnknownOutcome
	}
	if !c.left {
		c.left = true
		u.bytes -= len(c.intent)
	}
	return fence.ErrNotApplied
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
		var within time.Duration
		if !c.deadline.IsZero() {
			if within = c.deadline.Sub(now); within <= 0 { // its caller is about to leave
				c.left = true
				continue
			}
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
	u.mu.Lock()
	defer u.mu.Unlock()
	u.retired = u.retired || m.Drain
	for i := range m.Answers {
		a := &m.Answers[i]
		c := u.waiting[a.ID]
		if c == nil || !c.written {
			continue // its caller has left
		}
		delete(u.waiting, a.ID)
		r, err := a.decode(u.contact, c.tile)
		c.answered <- result{r, err}
	}
	u.finishRetired()
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
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	for id, c := range u.waiting {
		delete(u.waiting, id)
		outcome := fence.ErrNotApplied
		if c.written {
			outcome = fence.ErrUnknownOutcome
			unknown++
		}
		c.answered <- result{err: &UnavailableError{Contact: u.contact, Outcome: outcome, Err: cause}}
	}
	u.queue = nil
	return unknown
}
