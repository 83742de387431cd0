package admission

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// delivery is the result of sending an intent.
type delivery struct {
	tile.Result
	err       error // nil with an outcome
	unknown   bool  // some process it was sent to may resolve it, although err says otherwise
	redirects int
	resubmits int
	replayed  bool // nothing was sent, the ledger had the outcome
	first     bool // this call admitted the action
	followed  bool // it was sent where its actor went, too
}

// movedTwice reports whether every process the intent was sent to, two in all, does not own the tile and
// will never resolve the intent.
func (d *delivery) movedTwice() bool {
	return d.redirects > 1 && !d.unknown && errors.Is(d.err, tile.ErrRedirect)
}

// deliver sends an intent to its tile's owner. If that process names another owner, the intent is
// resubmitted there, once: a wrong route is the system's miss and costs the player a round trip, no more.
//
// An action is sent only to the owner that the coordination store names, and only that owner's answer settles it.
// Gossip and redirects come from any process that can join: a false one could have the action applied by the owner, and
// its cost refunded by the ledger.
func (g *Gateway) deliver(ctx context.Context, kind Kind, in tile.Intent) (d delivery) {
	contact, spawned, err := g.route(ctx, kind, &in)
	if err != nil {
		d.err = err
		return d
	}
	g.submit(ctx, contact, in, &d)
	if spawned && kind == Act {
		g.confirm(ctx, contact, &in, &d)
	}
	g.resubmit(ctx, kind, contact, in, &d)
	return d
}

// resubmit sends an intent on, once, if the process at contact has answered that it does not own the tile.
func (g *Gateway) resubmit(ctx context.Context, kind Kind, contact string, in tile.Intent, d *delivery) {
	if _, moved := movedTo(d.err); !moved {
		return
	}
	// The router knows that contact is wrong, and what the redirect names; it says whether that may be called.
	next, spawned, err := g.route(ctx, kind, &in)
	if err != nil {
		d.err = err
		return
	}
	if next == contact {
		d.err = &route.NoRouteError{Tile: in.Tile, Err: d.err}
		return
	}
	d.resubmits++
	g.submit(ctx, next, in, d)
	if spawned && kind == Act {
		g.confirm(ctx, next, &in, d)
	}
}

// confirm makes the answer of a process that was to begin the tile unknown, unless it has become the owner that the
// store names.
func (g *Gateway) confirm(ctx context.Context, contact string, in *tile.Intent, d *delivery) {
	owner, err := g.router.Confirmed(ctx, in.Tile)
	if owner == contact {
		return
	}
	d.unknown = true
	if d.err != nil { // a redirect too: the owner is asked next, but nothing is given back
		return
	}
	g.cfg.Logger.Warn("an outcome was not believed: the store does not name the process as the tile's owner",
		"tile", in.Tile, "contact", contact, "owner", owner, "action", in.ActionID, "error", err)
	d.Result = tile.Result{}
	d.err = &ForwardError{Tile: in.Tile, Contact: contact, Err: errors.Join(errUnconfirmed, err)}
}

var errUnconfirmed = errors.New("the process that answered is not the owner that the store names")

// route names the process to send an intent to: the tile's owner, or one that may begin the tile, spawned. If the tile
// is suspect, it waits for the tile's turn. Errors: a *LimitError, a *route.NoRouteError.
func (g *Gateway) route(ctx context.Context, kind Kind, in *tile.Intent) (contact string, spawned bool, err error) {
	owner := g.router.Route
	if kind == Act {
		owner = g.router.Confirmed
	}
	turn := func() error {
		wait, ok := g.takeovers.take(in.Tile, in.Actor)
		return g.shape(ctx, LimitError{Scope: ScopeTakeover, Kind: kind, Tile: in.Tile, Actor: in.Actor}, wait, ok)
	}
	if err := turn(); err != nil {
		return "", false, err
	}
	contact, err = owner(ctx, in.Tile)
	if err == nil {
		return contact, false, nil
	}
	g.takeovers.suspect(in.Tile)
	if none, ok := errors.AsType[*route.NoRouteError](err); g.cfg.Spawn == nil || !ok || none.Err != nil {
		return "", false, asRouteError(in.Tile, err)
	}
	if err := turn(); err != nil {
		return "", false, err
	}
	if contact, err = g.cfg.Spawn(ctx, in.Tile); err != nil {
		return "", false, asRouteError(in.Tile, err)
	}
	return contact, true, nil
}

// submit sends the intent to one process and learns from its answer.
func (g *Gateway) submit(ctx context.Context, contact string, in tile.Intent, d *delivery) {
	r, err := g.forward(ctx, contact, in)
	g.learn(ctx, contact, &in, r, err, d)
}

// forward sends the intent to one process and waits for its answer.
func (g *Gateway) forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error) {
	limited, cancel := context.WithTimeout(ctx, g.cfg.ForwardTimeout)
	defer cancel()
	return g.tiles.Forward(limited, contact, in)
}

// learn notes the answer of a process, and reports to the router what it says about it.
func (g *Gateway) learn(
	ctx context.Context, contact string, in *tile.Intent, r tile.Result, err error, d *delivery,
) {
	if err == nil && !r.Outcome.Valid() {
		err = &fence.ArgumentError{Field: "outcome", Value: r.Outcome, Want: "one of the four"}
		d.unknown = true
	}
	if err == nil {
		d.Result, d.err = r, nil
		g.takeovers.trust(in.Tile)
		return
	}
	d.err = &ForwardError{Tile: in.Tile, Contact: contact, Err: err}
	d.unknown = d.unknown || !undelivered(err)
	if to, moved := movedTo(err); moved {
		d.redirects++
		g.router.Correct(contact, to)
		if to.Contact == "" {
			g.takeovers.suspect(in.Tile)
		}
		return
	}
	answered := errors.Is(err, tile.ErrOverloaded) || errors.Is(err, tile.ErrQuarantined) ||
		errors.Is(err, tile.ErrCrossed) || errors.Is(err, fence.ErrInvalidArgument)
	if !answered && !over(ctx) {
		g.router.Correct(contact, route.Entry{Tile: in.Tile})
		g.takeovers.suspect(in.Tile)
	}
}

// over reports whether a caller has left or is about to, which says nothing about the process that it has waited for.
func over(ctx context.Context) bool {
	until, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(until)
}

// movedTo returns the owner that err names, which may be unknown, if err says that the tile has moved.
func movedTo(err error) (route.Entry, bool) {
	if r, ok := errors.AsType[*tile.RedirectError](err); ok {
		return route.Entry{Tile: r.Tile, Epoch: r.Epoch, Contact: r.Contact}, true
	}
	if u, ok := errors.AsType[*tile.UnresolvedError](err); ok {
		return route.Entry{Tile: u.Tile, Epoch: u.Epoch, Contact: u.Contact}, true
	}
	return route.Entry{}, false
}

// undelivered reports whether err says for certain that the process will never resolve the intent.
func undelivered(err error) bool {
	if errors.Is(err, tile.ErrUnresolved) || errors.Is(err, fence.ErrUnknownOutcome) {
		return false
	}
	for _, sure := range []error{tile.ErrRedirect, tile.ErrCrossed, tile.ErrOverloaded, tile.ErrQuarantined,
		fence.ErrInvalidArgument, fence.ErrNotApplied} {
		if errors.Is(err, sure) {
			return true
		}
	}
	return false
}

func asRouteError(id fence.TileID, err error) error {
	if errors.Is(err, route.ErrNoRoute) {
		return err
	}
	return &route.NoRouteError{Tile: id, Err: err}
}

// settleTimeout bounds the recording of an outcome, which goes on when the caller has left.
const settleTimeout = 5 * time.Second

// finish delivers an open action, whose attempt the caller has begun, and settles it.
//
// What it does with the delivery:
//
//	outcome                              resolve with it
//	no tile will ever resolve it:
//	  redirected twice, actor has left   abandon as redirected
//	  refused as malformed               abandon as rejected
//	  overloaded, quarantined, no route,
//	  unreachable                        withdraw the attempt; pending
//	anything unknown                     pending
//
// Abandoning fails while another attempt may have delivered the action; then it is withdrawn and pending.
func (g *Gateway) finish(ctx context.Context, art Artifact) (Artifact, delivery, error) {
	now, err := g.ledger.Now(ctx)
	if err != nil {
		g.withdraw(ctx, art)
		return art, delivery{}, &PendingError{Artifact: art, Err: err}
	}
	if now.Sub(art.Admitted) > g.cfg.RetryWindow {
		return g.expire(ctx, art)
	}
	d := g.deliver(ctx, Act, art.Intent())
	// The tile's answer is kept even if the caller has gone: that is the moment it matters most.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	switch {
	case d.err == nil:
		got, err := g.ledger.Resolve(ctx, art.ActionID, d.Outcome)
		if err != nil {
			return art, d, &PendingError{Artifact: art, Err: err}
		}
		if got.Outcome == d.Outcome {
			got.Why = d.Why
		}
		got.Crossing = d.Crossing
		return got, d, nil
	case d.unknown:
	case d.movedTwice(), errors.Is(d.err, tile.ErrCrossed):
		if got, err := g.ledger.Abandon(ctx, art, stream.Redirected); err == nil {
			if crossed, ok := errors.AsType[*tile.CrossedError](d.err); ok {
				got.Crossing = crossed.Crossing
			}
			return got, d, nil
		}
		g.withdraw(ctx, art)
	case errors.Is(d.err, ErrForward) && errors.Is(d.err, fence.ErrInvalidArgument):
		if got, err := g.ledger.Abandon(ctx, art, stream.Rejected); err == nil {
			return got, d, nil
		}
		g.withdraw(ctx, art)
	default:
		g.withdraw(ctx, art)
	}
	return art, d, &PendingError{Artifact: art, Err: d.err}
}

// expire ends an action that may not be sent any more: with its cost back, if no attempt but this one was
// ever begun and not withdrawn. Otherwise a tile may have applied it, and forgotten.
func (g *Gateway) expire(ctx context.Context, art Artifact) (Artifact, delivery, error) {
	got, err := g.ledger.Abandon(ctx, art, stream.Rejected)
	if err == nil {
		return got, delivery{}, nil
	}
	if errors.Is(err, ErrContested) {
		err = ErrExpired
	}
	g.withdraw(ctx, art)
	return art, delivery{}, &PendingError{Artifact: art, Err: err}
}

// withdraw is best effort: an attempt that stays counted only keeps the action from being abandoned.
func (g *Gateway) withdraw(ctx context.Context, art Artifact) {
	if err := g.ledger.Withdraw(ctx, art); err != nil {
		g.cfg.Logger.Warn("attempt could not be withdrawn", "action", art.ActionID, "error", err)
	}
}

// Router finds the owner that takes a tile's intents. route.Router is one. It may be wrong: the tile answers with a
// redirect then, which costs one round trip. Implementations are safe for concurrent use.
type Router interface {
	// Route names the contact of the tile's owner, as far as the router knows. A *route.NoRouteError if
	// no owner is known, or no source could be asked.
	Route(ctx context.Context, tile fence.TileID) (contact string, err error)

	// Confirmed names the contact of the tile's owner according to the coordination store alone. Economic actions
	// are sent nowhere else. Errors as for Route.
	Confirmed(ctx context.Context, tile fence.TileID) (contact string, err error)

	// Correct reports to the router that the process at contact wrong does not own now.Tile, or cannot be
	// reached. now is the owner that process named; its epoch is zero or its contact empty if it knew none.
	// The next Route of this tile must not answer wrong again without having looked further than before
	// (past a cache, say), and the next Confirmed asks the store.
	Correct(wrong string, now route.Entry)
}
