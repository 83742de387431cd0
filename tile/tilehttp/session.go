package tilehttp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// session is a tile server's end of a connection to a gateway. One goroutine more runs for each intent under way that
// HandlerConfig.Queue did not take.
//
// What a gateway that does not read can pile up is bounded: an intent counts as under way until its answer is part of a
// message, and when as many refusals wait, the gateway is not read any more, until the write times out.
type session struct {
	*link
	h    *Handler
	ctx  context.Context
	stop context.CancelCauseFunc
	work sync.WaitGroup // intents

	mu       sync.Mutex
	room     sync.Cond // the writer has taken answers, or will take none any more
	answers  []encoded // not written
	refusals int       // of these, to intents that were never under way
	underWay int       // intents, those with an answer that waits included
	queued   []*place  // of these, those that were queued at their tiles, with deadlines, as they came
	notice   bool      // the gateway is to be asked to send no more
	noticed  bool      // it was
	ended    bool
}

// place is that of an intent under way which was queued at its tile. A tile that is frozen must not keep the places of
// intents that their gateway has given up: there would be none for those of other tiles.
type place struct {
	until time.Time // when the gateway gives up; zero: it did not say
	given bool      // the intent was answered, or its place was given back
}

// encoded is an answer.
type encoded struct {
	json    []byte
	refusal bool // of an intent that was never under way
}

// run serves the connection until it ends, and returns why.
func (s *session) run(l *link) error {
	s.mu.Lock()
	s.link = l
	s.signal() // it may be draining
	s.mu.Unlock()
	err := s.serve(s.ctx, s.stop, s.readAll, func() error {
		err := s.write(s.ctx, s.next)
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		s.room.Broadcast()
		return err
	})
	s.work.Wait()
	return err
}

func (s *session) readAll() error {
	for {
		b, err := s.receive(s.ctx)
		var intents []wireSent
		if err == nil {
			intents, err = decodeIntents(b, s.refuse)
		}
		if argument, malformed := errors.AsType[*fence.ArgumentError](err); malformed {
			s.dismiss(argument)
		}
		if err != nil {
			return err
		}
		for i := range intents {
			s.start(&intents[i])
		}
	}
}

// dismiss tells a gateway that its message could not be read, and closes the connection.
func (s *session) dismiss(why *fence.ArgumentError) {
	e := encodeError(why)
	if s.send(s.ctx, mustEncode(struct {
		Version int        `json:"v"`
		Error   *wireError `json:"error"`
	}{version, &e})) == nil {
		_ = s.conn.Close(websocket.StatusPolicyViolation, "not a message of "+subprotocol)
	}
}

// start runs an intent, if there is room.
func (s *session) start(w *wireSent) {
	s.mu.Lock()
	s.giveBack()
	full := s.underWay >= s.h.cfg.tuning.MaxInFlight
	if !full {
		s.underWay++
	}
	s.mu.Unlock()
	if full {
		s.refuse(w.ID, fmt.Errorf("%d intents are under way: %w", s.h.cfg.tuning.MaxInFlight, tile.ErrOverloaded))
		return
	}
	id, in, p := w.ID, w.intent(), &place{}
	if w.Within > 0 {
		p.until = time.Now().Add(time.Duration(min(w.Within, maxWithin)) * time.Millisecond)
		in.Deadline = p.until
	}
	wait := func() {
		r, err := s.submit(p.until, in)
		s.answer(encodeAnswer(id, r, err))
	}
	queue := s.h.cfg.Queue
	if queue == nil || queue(s.ctx, in, func(r tile.Result, err error) {
		switch {
		case s.late(p): // the gateway has given up
		case errors.Is(err, tile.ErrRedirect):
			s.again(wait) // the intent was not resolved, and Submit may find the owner
		default:
			s.answer(encodeAnswer(id, r, err))
		}
	}) != nil {
		s.work.Go(wait) // what the error was, or what can be done, is Submit's business
	} else if w.Within > 0 {
		s.mu.Lock()
		s.queued = append(s.queued, p)
		s.mu.Unlock()
	}
}

// giveBack gives back the places of intents whose gateway has given them up. The mutex is held.
func (s *session) giveBack() {
	for len(s.queued) > 0 {
		p := s.queued[0]
		switch {
		case p.given:
		case time.Now().After(p.until):
			p.given = true
			s.underWay--
		default:
			return
		}
		s.queued[0] = nil
		s.queued = s.queued[1:]
	}
}

// late notes the answer to an intent that was queued, and reports whether its place was given back before.
func (s *session) late(p *place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := p.given
	p.given = true
	return late
}

// again runs what has to wait for an intent that was queued, unless the session is over.
func (s *session) again(wait func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.work.Go(wait)
	}
}

// maxWithin keeps a deadline far away from any overflow.
const maxWithin = int64(24 * time.Hour / time.Millisecond)

// submit submits an intent until its gateway gives up. It keeps one that makes the Submitter panic from ending the
// process, as package http does with a request.
func (s *session) submit(until time.Time, in tile.Intent) (_ tile.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.h.cfg.refusals.Error("panic at an intent", "tile", in.Tile, "panic", v, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	ctx := s.ctx
	if !until.IsZero() {
		limited, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		ctx = limited
	}
	return s.h.tiles.Submit(ctx, in)
}

var errPanic = errors.New("panic")

// answer queues the answer to an intent that was under way.
func (s *session) answer(b []byte) {
	s.mu.Lock()
	s.answers = append(s.answers, encoded{json: b})
	s.mu.Unlock()
	s.signal()
}

// refuse queues the answer to an intent that does not get under way. It waits when there are too many.
func (s *session) refuse(id uint64, err error) {
	b := encodeAnswer(id, tile.Result{}, err)
	s.mu.Lock()
	for s.refusals >= s.h.cfg.tuning.MaxInFlight && !s.ended {
		s.room.Wait()
	}
	s.refusals++
	s.answers = append(s.answers, encoded{json: b, refusal: true})
	s.mu.Unlock()
	s.signal()
}

// next makes a message of the answers that wait.
func (s *session) next(message []byte) (_ []byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notice && !s.noticed {
		s.noticed = true
		return append(message, drainNotice...), len(s.answers) > 0
	}
	if len(s.answers) == 0 {
		return message, false
	}
	message = append(message, answersHead...)
	taken := 0
	for i, a := range s.answers {
		if i > 0 && len(message)+1+len(a.json)+len(messageTail) > maxMessage {
			break
		}
		if i > 0 {
			message = append(message, ',')
		}
		message = append(message, a.json...)
		if a.refusal {
			s.refusals--
		} else {
			s.underWay--
		}
		taken++
	}
	clear(s.answers[:taken])
	s.answers = s.answers[taken:]
	s.room.Broadcast()
	return append(message, messageTail...), len(s.answers) > 0
}

// drain asks the gateway to send no more.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = true
	if s.link != nil { // else run comes to it
		s.signal()
	}
}
