package admission

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// starter is a Forwarder that needs no goroutine for an intent that waits for its tile; see tilehttp.Client.Start.
type starter interface {
	Start(ctx context.Context, contact string, in tile.Intent, done func(tile.Result, error))
}

// Move takes a movement: it is checked, delayed if it is above a rate, sent to the tile, and never recorded. Repeating
// a movement is harmless, so a caller whose call failed simply moves again. Redirected means that the tile moved twice
// while the intent travelled. One that must not happen twice has a tile.Intent.MoveID. If the actor has left the tile
// for another one, the intent is sent there, once; the result's Crossing says so.
//
// Errors: a *fence.ArgumentError, also for an intent with an ActionID, since what carries one belongs
// through Act; a *LimitError; a *DeclinedError; a *route.NoRouteError; a *ForwardError, in which errors.Is finds
// tile.ErrOverloaded; or a *tile.CrossedError, if where the actor went the intent could not be delivered.
func (g *Gateway) Move(ctx context.Context, in tile.Intent) (tile.Result, error) {
	m := g.newMovement(ctx, in)
	if m.begin() {
		m.result, m.err = g.forward(ctx, m.contact, in)
	}
	return m.finish()
}

// StartMove is Move without a goroutine that waits for the tile, if the Forwarder has Start: it returns when the
// movement is on its way, for which it may wait. It calls decided once, before it returns or later. finish then gives
// what Move would return, and must be called once; if waits is true it may wait, since the tile's answer sends the
// movement elsewhere. decided must not block.
func (g *Gateway) StartMove(
	ctx context.Context, in tile.Intent, decided func(finish func() (tile.Result, error), waits bool),
) {
	m := g.newMovement(ctx, in)
	started := m.begin()
	tiles, ok := g.tiles.(starter)
	if !started || !ok {
		if started {
			m.result, m.err = g.forward(ctx, m.contact, in)
		}
		decided(m.finish, m.goesOn())
		return
	}
	if until := time.Now().Add(g.cfg.ForwardTimeout); in.Deadline.IsZero() || until.Before(in.Deadline) {
		in.Deadline = until
	}
	tiles.Start(ctx, m.contact, in, func(r tile.Result, err error) {
		m.result, m.err = r, err
		decided(m.finish, m.goesOn())
	})
}

// movement is one on its way to its tile.
type movement struct {
	g     *Gateway
	ctx   context.Context
	in    tile.Intent
	began time.Time

	sent    bool
	contact string // of the process that it was sent to first
	result  tile.Result
	err     error // why it was not sent, or what that process answered
}

func (g *Gateway) newMovement(ctx context.Context, in tile.Intent) *movement {
	return &movement{g: g, ctx: ctx, in: in, began: time.Now()}
}

// begin takes what goes before the first submission, and reports whether there is one.
func (m *movement) begin() bool {
	if m.err = validateMove(&m.in); m.err != nil {
		return false
	}
	info := LimitError{Scope: ScopeActor, Kind: Move, Tile: m.in.Tile, Actor: m.in.Actor}
	wait, ok := m.g.moves.take(m.in.Actor)
	if m.err = m.g.shape(m.ctx, info, wait, ok); m.err != nil {
		return false
	}
	m.contact, m.err = m.g.enter(m.ctx, &m.in)
	m.sent = m.err == nil
	return m.sent
}

// goesOn reports whether the first answer leads to another submission.
func (m *movement) goesOn() bool {
	_, moved := movedTo(m.err)
	return m.sent && (moved || errors.Is(m.err, tile.ErrCrossed))
}

// finish does what follows from the first answer.
func (m *movement) finish() (tile.Result, error) {
	d, err := m.conclude()
	m.g.done(DoneInfo{Kind: Move, Tile: m.in.Tile, Outcome: d.Outcome, Redirects: d.redirects, Resubmits: d.resubmits,
		Followed: d.followed, Took: time.Since(m.began), Err: err})
	return d.Result, err
}

func (m *movement) conclude() (delivery, error) {
	if !m.sent {
		return delivery{}, m.err
	}
	d := m.g.answered(m.ctx, m.contact, &m.in, m.result, m.err)
	crossed, ok := errors.AsType[*tile.CrossedError](d.err)
	if !ok {
		return d, d.err
	}
	in := m.in
	in.Tile = crossed.To
	var there delivery
	contact, err := m.g.enter(m.ctx, &in)
	if err == nil {
		r, answer := m.g.forward(m.ctx, contact, in)
		there = m.g.answered(m.ctx, contact, &in, r, answer)
		err = there.err
	}
	there.redirects, there.resubmits, there.followed = there.redirects+d.redirects, there.resubmits+d.resubmits, true
	if there.Crossing.IsZero() {
		there.Crossing = crossed.Crossing
	}
	if err != nil && !errors.Is(err, tile.ErrCrossed) {
		err = errors.Join(d.err, err)
	}
	return there, err
}

// enter names the process to send a movement to, if the game allows it there and it is its turn.
func (g *Gateway) enter(ctx context.Context, in *tile.Intent) (contact string, err error) {
	if err := g.allow(in.Tile); err != nil {
		return "", err
	}
	if g.cfg.CheckMove != nil {
		if err := g.cfg.CheckMove(ctx, *in); err != nil {
			return "", &DeclinedError{Kind: Move, Err: err}
		}
	}
	info := LimitError{Scope: ScopeTile, Kind: Move, Tile: in.Tile, Actor: in.Actor}
	wait, ok := g.crowds.takeFor(in.Tile, g.moves.left(in.Actor))
	if err := g.shape(ctx, info, wait, ok); err != nil {
		return "", err
	}
	contact, _, err = g.route(ctx, Move, in)
	return contact, err
}

// answered is the delivery of a movement that the process at contact has answered. It sends it on if that is not the
// tile's owner.
func (g *Gateway) answered(
	ctx context.Context, contact string, in *tile.Intent, r tile.Result, err error,
) (d delivery) {
	g.learn(ctx, contact, in, r, err, &d)
	g.resubmit(ctx, Move, contact, *in, &d)
	if d.movedTwice() {
		d.Outcome, d.err = stream.Redirected, nil
	}
	return d
}

// validateMove refuses an action ID: a movement that had one would take the place of a paid action in the
// tile's memory.
func validateMove(in *tile.Intent) error {
	if err := in.Validate(); err != nil {
		return err
	}
	if in.ActionID != "" {
		return &fence.ArgumentError{Field: "action ID", Value: in.ActionID,
			Want: "none: movement is not recorded, use Act"}
	}
	return validateName("actor", in.Actor)
}
