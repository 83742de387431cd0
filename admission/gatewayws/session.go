package gatewayws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// session is one client's connection.
//
// One goroutine reads, one sends pings, and one more runs for each intent under way; serve
// returns when all have ended. Any of them may write; the connection serialises writes.
type session struct {
	cfg     *Config
	gateway Admitter
	actor   string
	slots   chan struct{}  // one element for each intent under way
	crew    chan struct{}  // one for each goroutine that runs an intent or writes its answer, twice as many
	gone    chan struct{}  // closed when the crew is gone for good
	work    sync.WaitGroup // the crew

	draining atomic.Bool
	drained  sync.Once
	closing  sync.WaitGroup // the closing handshake

	mu   sync.Mutex
	conn *websocket.Conn // nil until the upgrade is done
}

func newSession(cfg *Config, gateway Admitter, actor string) *session {
	return &session{
		cfg: cfg, gateway: gateway, actor: actor, gone: make(chan struct{}),
		slots: make(chan struct{}, cfg.MaxInFlight), crew: make(chan struct{}, 2*cfg.MaxInFlight),
	}
}

func (s *session) serve(ctx context.Context, conn *websocket.Conn) {
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	began := time.Now()
	s.cfg.Hooks.Opened(ConnInfo{Actor: s.actor})

	ctx, cancel := context.WithCancel(ctx)
	var alive sync.WaitGroup
	alive.Go(func() { s.ping(ctx) })
	if s.draining.Load() { // since before there was a connection to close
		s.drain()
	}
	err := s.read(ctx)
	// Outcomes that come now reach only the ledger, where the client's retry finds them.
	s.work.Wait()
	cancel()
	alive.Wait()
	_ = conn.CloseNow()     // it has ended already, for err
	s.drained.Do(func() {}) // too late for a closing handshake
	s.closing.Wait()
	s.cfg.Hooks.Closed(ConnInfo{Actor: s.actor, Open: time.Since(began), Err: err})
}

// read takes frames until the connection ends.
func (s *session) read(ctx context.Context) error {
	for {
		kind, b, err := s.conn.Read(ctx)
		if err != nil {
			return err
		}
		f, err := decodeIntent(b)
		if kind != websocket.MessageText {
			f, err = intentFrame{}, errors.New("the message is binary: send text")
		}
		switch {
		case err != nil:
			s.refuse(ctx, f, &Error{Code: CodeMalformed, Message: err.Error()})
		case s.draining.Load():
			s.refuse(ctx, f, errDraining)
		default:
			s.start(ctx, f)
		}
	}
}

// start runs an intent, if there is room.
//
// An intent gives its slot back before its answer is written, or a client that sends the next one at once
// would find the slot still taken. What a client that reads slowly can pile up is bounded by the crew: when
// all of them wait to write, the client is not read any more.
func (s *session) start(ctx context.Context, f intentFrame) {
	select {
	case s.crew <- struct{}{}:
	case <-s.gone:
		s.refuse(ctx, f, errDraining)
		return
	}
	select {
	case s.slots <- struct{}{}:
	default:
		<-s.crew
		s.refuse(ctx, f, &Error{Code: CodeBusy, Message: fmt.Sprintf("%d intents are under way", cap(s.slots)),
			Retryable: true})
		return
	}
	s.work.Go(func() {
		defer func() { <-s.crew }()
		answer := s.answer(ctx, f)
		<-s.slots
		s.write(ctx, answer)
	})
}

// answer runs an intent and says its outcome, or what went wrong.
func (s *session) answer(ctx context.Context, f intentFrame) answerFrame {
	began := time.Now()
	answer, err := s.guarded(ctx, f)
	info := AnswerInfo{Actor: s.actor, Kind: f.Kind, Outcome: answer.Outcome, Took: time.Since(began)}
	frame := answer.frame(f.ID)
	if err != nil {
		e := describe(err)
		switch e.Code {
		case CodeUnavailable: // one for each intent while a tile has no owner; Hooks.Answered counts them
			s.cfg.Logger.Debug("intent could not be delivered", "actor", s.actor, "kind", f.Kind, "tile", f.Tile,
				"error", err)
		case CodeInternal:
			s.cfg.Logger.Warn("intent failed", "actor", s.actor, "kind", f.Kind, "tile", f.Tile, "error", err)
		}
		info.Code, frame = e.Code, e.frame(f.ID)
	}
	s.cfg.Hooks.Answered(info)
	return frame
}

// guarded keeps one intent that makes the game's own checks panic from ending every client's connection,
// as package http does with a request.
func (s *session) guarded(ctx context.Context, f intentFrame) (a Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.cfg.Logger.Error("panic at the gateway", "actor", s.actor, "kind", f.Kind, "panic", v, "stack",
				string(debug.Stack()))
			a, err = Answer{}, errPanic
		}
	}()
	return s.run(ctx, f)
}

var (
	errDraining = &Error{Code: CodeDraining, Message: "this gateway is going away", Retryable: true}
	errPanic    = errors.New("panic")
	errPaidMove = &fence.ArgumentError{Field: "action, asset, cost", Value: "set",
		Want: "none of them in a move, which is free"}
)

// run hands the intent to the gateway.
func (s *session) run(ctx context.Context, f intentFrame) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.IntentTimeout)
	defer cancel()
	if f.Kind == admission.Act {
		art, err := s.gateway.Act(ctx, admission.Action{ID: f.Action, Actor: s.actor, Asset: f.Asset, Cost: f.Cost,
			Tile: f.Tile, Body: f.Body})
		if err != nil {
			return Answer{}, err
		}
		return Answer{Outcome: art.Outcome, Admission: art.AdmissionID, Reason: art.Reason, Refunded: art.Refunded}, nil
	}
	if f.Action != "" || f.Asset != "" || f.Cost != 0 {
		return Answer{}, errPaidMove
	}
	outcome, err := s.gateway.Move(ctx, tile.Intent{Tile: f.Tile, Actor: s.actor, Body: f.Body})
	return Answer{Outcome: outcome}, err
}

// refuse answers a frame without running it. It writes in the reader's own goroutine, so that a client
// that sends nonsense faster than it reads answers is not read any more.
func (s *session) refuse(ctx context.Context, f intentFrame, e *Error) {
	s.cfg.Hooks.Answered(AnswerInfo{Actor: s.actor, Kind: f.Kind, Code: e.Code})
	s.write(ctx, e.frame(f.ID))
}

// write sends a frame. A client that does not take it in time is disconnected.
func (s *session) write(ctx context.Context, f answerFrame) {
	b, err := json.Marshal(f)
	if err != nil { // a struct of strings and numbers
		panic(err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, b); err != nil {
		_ = s.conn.CloseNow() // the reader reports why
	}
}

func (s *session) ping(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limited, cancel := context.WithTimeout(ctx, s.cfg.PingInterval)
		err := s.conn.Ping(limited)
		cancel()
		if err != nil {
			_ = s.conn.CloseNow() // the reader reports why
			return
		}
	}
}

// drain closes the connection when the intents under way are finished. It does not wait.
func (s *session) drain() {
	s.draining.Store(true)
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return // serve will come back to it
	}
	s.drained.Do(func() {
		s.closing.Go(func() {
			s.dismiss()
			_ = conn.Close(websocket.StatusGoingAway, "draining") // a client that does not answer is cut off
		})
	})
}

// dismiss waits until no intent is under way and every answer is written, and takes care that none begins.
func (s *session) dismiss() {
	for range cap(s.crew) {
		s.crew <- struct{}{}
	}
	close(s.gone)
}

func (s *session) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.CloseNow()
	}
}
