package gatewayws

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/tile"
)

// starter is an Admitter that needs no goroutine for a movement that waits for its tile; see admission.Gateway.
type starter interface {
	StartMove(ctx context.Context, in tile.Intent, decided func(finish func() (tile.Result, error), waits bool))
}

// waiting is a starter that waits in the caller's goroutine.
type waiting struct{ Admitter }

// StartMove implements starter.
func (w waiting) StartMove(
	ctx context.Context, in tile.Intent, decided func(finish func() (tile.Result, error), waits bool),
) {
	r, err := w.Move(ctx, in)
	decided(func() (tile.Result, error) { return r, err }, false)
}

// movement is one under way. It has a goroutine until it is sent to its tile, and none while it waits there.
type movement struct {
	s       *conn
	f       *intentFrame
	began   time.Time
	led     bool // it named no tile, and goes where the actor is
	cancel  context.CancelFunc
	decided atomic.Bool
}

// startMove sends a movement to its tile, for which it may wait, and sees to its answer.
func (s *conn) startMove(ctx context.Context, f *intentFrame) {
	m := &movement{s: s, f: f, began: time.Now(), led: f.Tile == 0}
	ctx, m.cancel = context.WithTimeout(session.NewContext(ctx, s.sess.Identity()), f.patience())
	if _, err := s.guarded(f, func() (Answer, error) { return Answer{}, m.start(ctx) }); err != nil {
		m.decide(func() (tile.Result, error) { return tile.Result{}, err }, false)
	}
}

// start returns an error if the movement is not begun. One without a tile, whose actor is nowhere that is known, the
// gateway refuses.
func (m *movement) start(ctx context.Context) (err error) {
	f := m.f
	if m.led {
		if f.Tile, err = m.s.where(ctx); err != nil {
			return err
		}
	}
	m.s.tile.Store(uint64(f.Tile))
	if f.Action != "" || f.Asset != "" || f.Cost != 0 {
		return errPaidMove
	}
	in := tile.Intent{Tile: f.Tile, MoveID: f.Move, Actor: m.s.sess.Actor(), Body: f.Body}
	m.s.moves.StartMove(ctx, in, m.decide)
	return nil
}

// decide answers the movement, once. It does not block.
func (m *movement) decide(finish func() (tile.Result, error), waits bool) {
	if !m.decided.CompareAndSwap(false, true) {
		return
	}
	if waits {
		m.s.workerPool.run(func() { m.finish(finish) })
		return
	}
	m.finish(finish)
}

func (m *movement) finish(finish func() (tile.Result, error)) {
	answer, err := m.s.guarded(m.f, func() (Answer, error) {
		r, err := finish()
		return Answer{Outcome: r.Outcome, Why: r.Why, Crossing: r.Crossing}, err
	})
	if m.led {
		answer.Tile = m.f.Tile
	}
	m.cancel()
	m.s.reply(m.s.say(m.f, &answer, err, time.Since(m.began)))
}

// guarded keeps one intent that makes the game's own checks panic from ending every client's connection,
// as package http does with a request.
func (s *conn) guarded(f *intentFrame, run func() (Answer, error)) (a Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.cfg.refusals.Error("panic at the gateway", "actor", s.sess.Actor(), "kind", f.Kind, "panic", v, "stack",
				string(debug.Stack()))
			a, err = Answer{}, errPanic
		}
	}()
	return run()
}
