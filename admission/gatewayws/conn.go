package gatewayws

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/session"
)

// conn is one client's connection. One goroutine reads; a worker runs each intent, but for the time in which a movement
// waits for its tile; the handler's writers write. A client that is silent costs the one that reads, and a timer.
type conn struct {
	cfg        *Config
	gateway    Admitter
	moves      starter
	pool       *socket.WritePool // all connections'
	gate       *gate.Gate
	sess       *gate.Session
	wire       *socket.Conn
	tile       atomic.Uint64 // of the last movement or action, or where an answer said that the player went
	opened     time.Time
	workerPool *workerPool    // all connections'
	work       sync.WaitGroup // what it does for this one
	beat       *time.Timer

	malformed socket.Budget // of messages; used by the reading goroutine only
	outbox    outbox

	mu       sync.Mutex
	room     sync.Cond // for one more to be busy; the reader waits
	running  int       // intents under way
	busy     int       // intents that are run or whose answer is not written, at most two for each under way
	draining bool
	leaving  bool               // our close frame is in the outbox, or was
	ended    *socket.FrameError // why the game or the server has ended it; nil: neither has
	asked    time.Time          // when it was last pinged
}

func (h *Handler) newConn(sess *gate.Session, wire *socket.Conn) *conn {
	s := &conn{cfg: &h.cfg, gateway: h.gateway, moves: h.moves, pool: h.pool, gate: h.gate, sess: sess, wire: wire,
		workerPool: &h.workerPool, opened: time.Now()}
	s.room.L = &s.mu
	s.outbox.turn.Write = s.writeSome
	return s
}

// serve returns when the connection has ended and its intents are finished. They do not end with it: outcomes that
// come later reach only the ledger, where the client's retry finds them.
func (s *conn) serve(ctx context.Context) {
	hook.Call(s.cfg.Hooks.Opened, ConnInfo{Actor: s.sess.Actor(), Began: s.sess.Began()})
	s.mu.Lock()
	s.beat = time.AfterFunc(s.untilBeat(), s.ping)
	s.mu.Unlock()
	err := s.enterGame(ctx)
	if err == nil {
		err = s.read(ctx)
	}
	s.outbox.close()
	s.work.Wait()
	s.mu.Lock()
	s.leaving = true
	s.beat.Stop()
	s.mu.Unlock()
	_ = s.wire.Close()
	hook.Call(s.cfg.Hooks.Closed, ConnInfo{Actor: s.sess.Actor(), Began: s.sess.Began(), Open: time.Since(s.opened),
		Err: err})
}

// enterGame lets the game do what it does for a player who comes, and tells the client how long the session lasts.
func (s *conn) enterGame(ctx context.Context) error {
	if s.cfg.Enter != nil {
		err := s.gate.Call(ctx, func(ctx context.Context) error { return s.cfg.Enter(ctx, s.sess.Identity()) })
		if err != nil {
			s.cfg.refusals.Warn("player could not enter", "actor", s.sess.Actor(), "error", err)
			status, reason := socket.ClosePolicy, "not let in"
			if errors.Is(err, gate.ErrTimeout) { // says nothing about the player
				status, reason = socket.CloseTryLater, "the game took too long"
			}
			s.leave(socket.CloseFrame(status, reason))
			s.wire.AwaitClose()
			return err
		}
	}
	if left := s.sess.Remaining(time.Now()); left > 0 {
		s.write(answerFrame{Session: &sessionFrame{left.Milliseconds()}}, load{})
	}
	return nil
}

// untilBeat is when the client is to be looked at again.
func (s *conn) untilBeat() time.Duration {
	if left := s.sess.Remaining(time.Now()); left > 0 {
		return min(left, s.cfg.PingInterval)
	}
	return s.cfg.PingInterval
}

// read takes frames until the connection ends.
func (s *conn) read(ctx context.Context) error {
	for {
		op, b, err := s.wire.Next()
		if wrong, ok := errors.AsType[*socket.FrameError](err); ok {
			s.leave(socket.CloseFrame(wrong.Status, wrong.Reason))
			s.wire.AwaitClose()
		}
		if err != nil {
			return err
		}
		switch op {
		case socket.OpPing:
			s.send(socket.Frame(socket.OpPong, b))
		case socket.OpPong:
		case socket.OpClose:
			s.leave(socket.Frame(socket.OpClose, b[:min(2, len(b))]))
			status := websocket.StatusCode(socket.CloseStatus(b))
			return websocket.CloseError{Code: status, Reason: string(b[min(2, len(b)):])}
		default:
			if wrong := s.receive(ctx, op, b); wrong != nil {
				s.leave(socket.CloseFrame(wrong.Status, wrong.Reason))
				s.wire.AwaitClose()
				return wrong
			}
		}
	}
}

// receive takes one message. An error ends the connection.
func (s *conn) receive(ctx context.Context, op byte, b []byte) *socket.FrameError {
	if over := s.over(time.Now()); over != nil {
		return over
	}
	f, err := decodeIntent(b)
	if op != socket.OpText {
		f, err = intentFrame{}, errors.New("the message is binary: send text")
	}
	refused := s.enter(err == nil)
	if err != nil {
		refused = &Error{Code: CodeMalformed, Message: err.Error()}
		if !s.malformed.Spend(time.Now(), 1, maxMalformed) {
			s.done(1)
			return errTooMalformed
		}
	}
	if refused == nil {
		s.work.Add(1)
		s.inTurn(&f, func(late error) {
			if late == nil && f.Kind == admission.Move {
				s.startMove(ctx, &f)
				return
			}
			s.reply(s.answer(ctx, &f, late))
		})
		return nil
	}
	hook.Call(s.cfg.Hooks.Answered, AnswerInfo{Actor: s.sess.Actor(), Kind: f.Kind, Code: refused.Code})
	s.write(refused.frame(f.ID), load{answers: 1})
	return nil
}

// maxMalformed is how many malformed messages a client may send in socket.BudgetWindow. A client with a bug gets an
// error that says what is wrong; one that goes on costs as much as a player.
const maxMalformed = 100

// Ends of a connection.
const endedReason = "the session was ended"

var (
	errTooMalformed = &socket.FrameError{Status: socket.ClosePolicy, Reason: "too many malformed messages"}
	errExpired      = &socket.FrameError{Status: CloseExpired, Reason: "the session has expired"}
	errMakesPlace   = &socket.FrameError{Status: socket.CloseTryLater,
		Reason: "the gateway is full, and this actor or address has more connections than others"}
	errEnded = &socket.FrameError{Status: CloseEnded, Reason: endedReason}
)

// over says why nothing is taken from the client any more; nil: it is. A client that was told to leave may go on
// sending until its connection is cut.
func (s *conn) over(now time.Time) *socket.FrameError {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return s.ended
	case s.sess.Expired(now):
		return errExpired
	}
	return nil
}

// makePlace ends a session of an actor, or an address, that holds more of a full gateway than others. Intents under way
// are finished, and what comes meanwhile is refused.
func (s *conn) makePlace() { _ = s.end(errMakesPlace) }

// end ends the session for the game, or for the server. It does not wait. It reports whether the session was open.
func (s *conn) end(why *socket.FrameError) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.leaving {
		return false
	}
	s.ended = why
	s.close(socket.CloseFrame(why.Status, why.Reason))
	return true
}

// enter counts an intent, or a message that is none, as busy until its answer is written. Its error says why an intent
// cannot be run.
//
// An intent is finished before its answer is written, or a client that sends the next one at once would find it
// still under way. What a client that reads slowly can pile up is bounded by how many are busy: when all of them wait
// to be written, the client is not read any more.
func (s *conn) enter(intent bool) (refused *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.busy >= 2*s.cfg.MaxInFlight {
		s.room.Wait()
	}
	s.busy++
	switch {
	case !intent:
	case s.draining:
		return errDraining
	case s.running == s.cfg.MaxInFlight:
		return &Error{Code: CodeBusy, Message: fmt.Sprintf("%d intents are under way", s.running), Retryable: true}
	default:
		s.running++
	}
	return nil
}

// reply counts an intent as run and has its answer written.
func (s *conn) reply(answer answerFrame) {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	s.write(answer, load{answers: 1})
	s.work.Done()
}

// done counts out those whose answers are written. The last one of a session that drains closes the connection.
func (s *conn) done(answers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy -= answers
	s.room.Signal()
	if s.draining && s.busy == 0 {
		s.close(goingAway)
	}
}

// answer runs an intent, unless it got no turn, and says its outcome, or what went wrong.
func (s *conn) answer(ctx context.Context, f *intentFrame, late error) answerFrame {
	began := time.Now()
	if late != nil {
		refused := unbegun(late)
		hook.Call(s.cfg.Hooks.Answered, AnswerInfo{Actor: s.sess.Actor(), Kind: f.Kind, Tile: f.Tile,
			Code: refused.Code})
		return refused.frame(f.ID)
	}
	answer, err := s.guarded(f, func() (Answer, error) { return s.run(ctx, f) })
	return s.say(f, &answer, err, time.Since(began))
}

func (s *conn) say(f *intentFrame, answer *Answer, err error, took time.Duration) answerFrame {
	info := AnswerInfo{Actor: s.sess.Actor(), Kind: f.Kind, Tile: f.Tile, Outcome: answer.Outcome, Took: took}
	frame := answer.frame(f.ID)
	if err != nil {
		e := describe(err)
		switch e.Code {
		case CodeUnavailable: // one for each intent while a tile has no owner; Hooks.Answered counts them
			s.cfg.Logger.Debug("intent could not be delivered", "actor", s.sess.Actor(), "kind", f.Kind,
				"tile", f.Tile, "error", err)
		case CodeInternal:
			s.cfg.refusals.Warn("intent failed", "actor", s.sess.Actor(), "kind", f.Kind, "tile", f.Tile, "error", err)
		}
		info.Code, frame = e.Code, e.frame(f.ID)
	}
	if frame.Crossed != nil {
		s.tile.Store(uint64(frame.Crossed.To))
		info.Tile = frame.Crossed.To
	}
	hook.Call(s.cfg.Hooks.Answered, info)
	return frame
}

var (
	errDraining  = &Error{Code: CodeDraining, Message: "this gateway is going away", Retryable: true}
	errPanic     = errors.New("panic")
	errNoOutcome = errors.New("no outcome is recorded yet")
	errToken     = &admission.DeclinedError{Err: errors.New("the token was not accepted")}
	errMoveID    = &fence.ArgumentError{Field: "move", Value: "set", Want: "none, but in a move"}
	errPaidMove  = &fence.ArgumentError{Field: "action, asset, cost", Value: "set",
		Want: "none of them in a move, which is free"}
)

// run hands an intent that is no movement to the gateway. Each kind has a function of its own: what an intent waits in,
// for up to a tick, is the stack of all its callers.
func (s *conn) run(ctx context.Context, f *intentFrame) (Answer, error) {
	if f.Kind == kindRefresh {
		return s.refresh(f.Token)
	}
	if f.Move != "" && f.Kind != admission.Move {
		return Answer{}, errMoveID
	}
	ctx, cancel := context.WithTimeout(session.NewContext(ctx, s.sess.Identity()), f.patience())
	defer cancel()
	switch f.Kind {
	case admission.Ask:
		return s.ask(ctx, f)
	case admission.Act:
		return s.act(ctx, f)
	}
	place, err := s.where(ctx)
	return Answer{where: &whereFrame{place}}, err
}

// where asks where the actor is.
func (s *conn) where(ctx context.Context) (fence.TileID, error) {
	if s.cfg.Where == nil {
		return 0, nil
	}
	return s.cfg.Where(ctx, s.sess.Actor())
}

func (s *conn) act(ctx context.Context, f *intentFrame) (Answer, error) {
	s.tile.Store(uint64(f.Tile))
	art, err := s.gateway.Act(ctx, admission.Action{ID: f.Action, Actor: s.sess.Actor(), Asset: f.Asset,
		Cost: f.Cost, Tile: f.Tile, Body: f.Body})
	if err != nil {
		return Answer{}, err
	}
	return answerOf(art), nil
}

func (s *conn) ask(ctx context.Context, f *intentFrame) (Answer, error) {
	art, err := s.gateway.Outcome(ctx, s.sess.Actor(), f.Action)
	if err == nil && art.Open() {
		err = &admission.PendingError{Artifact: art, Err: errNoOutcome}
	}
	if err != nil {
		return Answer{}, err
	}
	return answerOf(art), nil
}

// refresh takes a new token of the client's.
func (s *conn) refresh(token string) (Answer, error) {
	if err := s.sess.Refresh(token); err != nil {
		s.cfg.refusals.Info("session not refreshed", "actor", s.sess.Actor(), "error", err)
		return Answer{}, errToken
	}
	s.mu.Lock()
	if !s.leaving {
		s.beat.Reset(s.untilBeat())
	}
	s.mu.Unlock()
	return Answer{session: &sessionFrame{s.sess.Remaining(time.Now()).Milliseconds()}}, nil
}

// write has an answer written.
func (s *conn) write(f answerFrame, of load) {
	s.post(socket.Seal(f.append(make([]byte, socket.MaxHeader, 96)), socket.OpText), of)
}

// send writes a frame before those of the outbox. A client that does not take it in time is disconnected.
func (s *conn) send(frame []byte) {
	if s.wire.Send(writeTimeout, frame) != nil {
		s.cut() // the reader reports why
	}
}

// ping asks a client for a sign of life if it has given none for PingInterval, and cuts it off if it was asked
// already.
func (s *conn) ping() {
	s.mu.Lock()
	heard, now := s.wire.Heard(), time.Now()
	quiet := now.Sub(heard) >= s.cfg.PingInterval
	deaf := quiet && !s.asked.IsZero() && heard.Before(s.asked)
	over := s.leaving
	if quiet {
		s.asked = now
	}
	s.mu.Unlock()
	switch {
	case over:
		return
	case s.sess.Expired(now):
		s.leave(socket.CloseFrame(errExpired.Status, errExpired.Reason))
		return
	case deaf:
		s.cut()
		return
	case quiet:
		s.send(socket.Frame(socket.OpPing, nil))
	}
	s.beat.Reset(s.untilBeat())
}

// drain closes the connection when the intents under way are finished. It does not wait.
func (s *conn) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	if s.busy == 0 {
		s.close(goingAway)
	}
}

var goingAway = socket.CloseFrame(int(websocket.StatusGoingAway), "draining")

// leave closes the connection with a frame, once, behind what is in the outbox. It does not wait. A client that does
// not answer the frame within writeTimeout is cut off.
func (s *conn) leave(closing []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(closing)
}

// close is leave with the mutex held.
func (s *conn) close(closing []byte) {
	if !s.leaving {
		s.leaving = true
		s.post(closing, load{closing: true})
	}
}

func (s *conn) cut() { _ = s.wire.Close() }
