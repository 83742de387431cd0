package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/tile"
)

// Forwarder carries an intent to the process at a contact and waits for its outcome. tilehttp.Client is
// one. Implementations are safe for concurrent use.
//
// Errors, by what they say about the intent:
//   - a *tile.RedirectError: that process has not resolved it and never will;
//   - a *tile.CrossedError: the tile has not resolved it and never will;
//   - tile.ErrOverloaded, a *fence.ArgumentError, or fence.ErrNotApplied: it was not queued;
//   - a *tile.UnresolvedError, and anything else: it may or may not be resolved.
//
// A Forwarder that cannot be sure must not answer one of the first three kinds: on them the ledger gives
// back what was spent.
//
// One that also has Start, as a tilehttp.Client has, takes the movements of Gateway.StartMove without a goroutine that
// waits for their outcome.
type Forwarder interface {
	Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error)
}

// PriceFunc decides what an action costs, from what the client asked: it may change Asset, Cost and Cooldown, and
// decline the action with an error. Retries of an action that is already admitted are not charged again, whatever it
// says. Nothing else compares the price with the body.
type PriceFunc func(ctx context.Context, a Action) (Action, error)

// ClientPrices is a PriceFunc that admits every action at the price its client names. A client can then buy anything
// for nothing: it is for tests, and for clients that are servers of the game.
func ClientPrices(_ context.Context, a Action) (Action, error) { return a, nil }

// GatewayConfig holds the optional settings of a Gateway. Nil and the zero value are valid.
type GatewayConfig struct {
	// Allow says which tiles exist: an error refuses a movement or an action before anything is spent or sent, with a
	// *fence.ArgumentError. An action that was admitted before goes on. It may be called from many goroutines; see
	// tilehost.Only. Default: every tile.
	Allow func(fence.TileID) error

	// CheckMove refuses a movement with an error. Nil lets all pass.
	CheckMove func(ctx context.Context, in tile.Intent) error

	// MoveRate and ActRate bound each actor's intents of either kind. Zero fields mean 10 a second with
	// bursts of 20, and 5 a second with bursts of 20. Retries count.
	MoveRate, ActRate Rate
	// TileRate bounds the movements to each tile through this gateway. Zero fields mean 10,000 a second with bursts
	// of 4,096, the default of tile.Limits.QueueLimit: what a tile can take between two ticks. Actors that have used up
	// their MoveRate may wait for half as long only, so they cannot take the turns of actors that move less.
	TileRate Rate
	// TakeoverRate bounds for how many tiles a second this gateway looks for another owner, or begins them, after the
	// known owner could not be reached or there was none. Zero fields mean 500 a second with bursts of 250. An actor
	// that causes more than one a second, after 16, waits for none: actors that cause fewer go first.
	TakeoverRate Rate
	// Unlimited switches these bounds off. Otherwise an intent above a rate waits for its turn for 250 ms at most,
	// which smooths bursts; above that, it is refused with a *LimitError. Actions are not delayed by ActRate, only
	// refused.
	// The rates of 65,536 actors are remembered, per kind, and of as many tiles.
	Unlimited bool

	// Spawn names a process that may begin a tile without an owner. Nil: its intents are answered with a
	// *route.NoRouteError.
	Spawn func(ctx context.Context, tile fence.TileID) (contact string, err error)

	// ForwardTimeout bounds one submission to a tile, its wait for the tick included. Zero means 3 s.
	ForwardTimeout time.Duration

	// RetryWindow is for how long after its admission an action may be sent to its tile. A tile forgets
	// outcomes after tile.Config.RememberFor, and would apply an action it has forgotten again. Tiles know the
	// longest window in use as tile.Config.RetryWindow, which refuses a shorter memory: raise both together. Zero
	// means tile.DefaultRetryWindow, 5 minutes (tiles remember 10 by default). It should be a multiple of SweepAge and
	// SweepInterval together, or sweeps come too late.
	RetryWindow time.Duration

	// SweepInterval is how often Run looks for actions left behind, give or take a quarter. Zero means 30 s.
	SweepInterval time.Duration
	// SweepAge is how long an action is without an attempt before a sweep retries it. It should exceed the
	// duration of an Act, or sweeps compete with clients. Zero means 30 s.
	SweepAge time.Duration
	// Reconciler, if set, settles what a sweep finds and may not send any more, from evidence alone. Without one such
	// actions stay pending until an operator decides.
	Reconciler *Reconciler

	Logger *slog.Logger // nil discards
	Hooks  Hooks        // Done, Shaped and Swept are called

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	MaxDelay  time.Duration // how long an intent above a rate may wait for its turn
	MaxActors int           // of how many actors the rates are remembered, per kind, and of how many tiles
}

func (c *GatewayConfig) withDefaults() (GatewayConfig, error) {
	d := setting.Of(c)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	var s setting.Check
	for _, f := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"ForwardTimeout", &d.ForwardTimeout, 3 * time.Second},
		{"RetryWindow", &d.RetryWindow, tile.DefaultRetryWindow},
		{"SweepInterval", &d.SweepInterval, 30 * time.Second},
		{"SweepAge", &d.SweepAge, 30 * time.Second},
	} {
		setting.Least(&s, time.Millisecond, f.name, f.value, f.zero)
	}
	for _, f := range []struct {
		name string
		rate *Rate
		zero Rate
	}{
		{"MoveRate", &d.MoveRate, Rate{PerSecond: 10, Burst: 20}},
		{"ActRate", &d.ActRate, Rate{PerSecond: 5, Burst: 20}},
		{"TileRate", &d.TileRate, Rate{PerSecond: 10000, Burst: 4096}},
		{"TakeoverRate", &d.TakeoverRate, Rate{PerSecond: 500, Burst: 250}},
	} {
		*f.rate = f.rate.orDefault(f.zero)
		s.Refuse(!(f.rate.PerSecond > 0) || f.rate.Burst < 0, // not "<= 0", which is false of NaN
			f.name, *f.rate, "positive numbers, or zero for the default")
	}
	s.Refuse(d.RetryWindow > MinRetention, "RetryWindow", d.RetryWindow, fmt.Sprintf(
		"at most MinRetention, %v: without its record an action would be a new one", MinRetention))
	d.tuning.MaxDelay = cmp.Or(d.tuning.MaxDelay, 250*time.Millisecond)
	d.tuning.MaxActors = cmp.Or(d.tuning.MaxActors, 65536)
	return d, s.Err
}

// Gateway is where players' intents come in: movements through Move, economic actions through Act. Create one with
// NewGateway. Safe for concurrent use; any number of gateways may share a ledger's store.
type Gateway struct {
	ledger *AdmissionLedger
	router Router
	tiles  Forwarder
	price  PriceFunc
	cfg    GatewayConfig

	// Nil: unlimited.
	moves, acts *shaper[string]
	crowds      *shaper[fence.TileID]
	takeovers   *turns

	counts   counters
	underWay underWay
	failing  atomic.Pointer[map[fence.TileID]bool] // tiles that the last sweep gave up
}

// NewGateway returns a gateway. price says what an action costs; it must not be nil, since nothing else keeps clients
// from naming their prices, and ClientPrices lets them. It does no I/O and starts nothing. Errors: a
// *fence.ArgumentError.
func NewGateway(
	ledger *AdmissionLedger, router Router, tiles Forwarder, price PriceFunc, cfg *GatewayConfig,
) (*Gateway, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	switch {
	case ledger == nil:
		return nil, &fence.ArgumentError{Field: "ledger", Value: nil, Want: "an AdmissionLedger"}
	case router == nil:
		return nil, &fence.ArgumentError{Field: "router", Value: nil, Want: "a Router, such as a route.Router"}
	case tiles == nil:
		return nil, &fence.ArgumentError{Field: "forwarder", Value: nil, Want: "a Forwarder, such as a tilehttp.Client"}
	case price == nil:
		return nil, &fence.ArgumentError{Field: "price", Value: nil,
			Want: "a function that decides what an action costs, or ClientPrices"}
	}
	g := &Gateway{ledger: ledger, router: router, tiles: tiles, price: price, cfg: c}
	if !c.Unlimited {
		g.moves = newShaper[string](c.MoveRate, c.tuning.MaxDelay, c.tuning.MaxActors)
		g.acts = newShaper[string](c.ActRate, 0, c.tuning.MaxActors)
		g.crowds = newShaper[fence.TileID](c.TileRate, c.tuning.MaxDelay, c.tuning.MaxActors)
		g.takeovers = newTurns(c.TakeoverRate, c.tuning.MaxDelay, c.tuning.MaxActors)
	}
	return g, nil
}

// Act takes an economic action: it is admitted durably before any tile sees it, then sent, then resolved
// with the tile's outcome. Call it again with the same action, by this gateway or another, after any
// failure or crash: it goes on where it stopped, and once there is an outcome it returns that, for ever. A call for an
// action that this gateway is presenting already waits for that call's answer.
//
// The artifact returned without an error is terminal. Its outcome is Rejected with a Reason when the
// account could not pay, and Redirected, with the cost given back, when the tile moved twice while the
// action travelled, or the actor has left it for the tile that the artifact's Crossing names. An action is not sent
// there by itself: two tiles could then decide it. The client sends another one.
//
// Errors: a *PendingError when the action is admitted but its outcome is not yet known or not recorded:
// retry; but if errors.Is finds ErrExpired, the tile may have forgotten the action, and sweeps or an
// operator settle it. A *fence.ArgumentError, *LimitError, *DeclinedError, *ReusedError or *fence.StoreError: this call
// sent nothing to a tile, and unless a *fence.StoreError says that the outcome is unknown, it spent nothing either.
func (g *Gateway) Act(ctx context.Context, a Action) (Artifact, error) {
	began := time.Now()
	art, d, err := g.actOnce(ctx, a)
	info := DoneInfo{Kind: Act, Tile: a.Tile, ActionID: a.ID, First: d.first, Redirects: d.redirects,
		Resubmits: d.resubmits, Took: time.Since(began), Err: err}
	if err == nil {
		info.Outcome, info.Replayed = art.Outcome, d.replayed
	}
	g.done(info)
	return art, err
}

func (g *Gateway) actOnce(ctx context.Context, a Action) (art Artifact, d delivery, err error) {
	if err := a.validateRequest(); err != nil {
		return Artifact{}, delivery{}, err
	}
	wait, ok := g.acts.take(a.Actor)
	info := LimitError{Scope: ScopeActor, Kind: Act, Tile: a.Tile, Actor: a.Actor}
	if err := g.shape(ctx, info, wait, ok); err != nil {
		return Artifact{}, delivery{}, err
	}
	// The fingerprint is that of the client's own request, so that a change of price does not make another request of a
	// retry.
	if a.Fingerprint.IsZero() {
		a.Fingerprint = fingerprintOf(a)
	}
	art, shared, err := g.underWay.once(ctx, presented{a.ID, a.Fingerprint}, func() (art Artifact, err error) {
		art, d, err = g.act(ctx, a)
		return art, err
	})
	d.replayed = d.replayed || shared
	return art, d, err
}

func (g *Gateway) act(ctx context.Context, a Action) (Artifact, delivery, error) {
	art, err := g.admit(ctx, a)
	if err != nil {
		return Artifact{}, delivery{}, err
	}
	first := !art.Duplicate
	if art.Open() && art.Duplicate {
		known := art
		if art, err = g.ledger.Attempt(ctx, a.ID); err != nil {
			return known, delivery{}, &PendingError{Artifact: known, Err: err}
		}
	}
	if !art.Open() {
		return art, delivery{replayed: art.Duplicate, first: first}, nil
	}
	art, d, err := g.finish(ctx, art)
	d.first = first
	return art, d, err
}

// admit prices the action and admits it.
func (g *Gateway) admit(ctx context.Context, a Action) (Artifact, error) {
	priced, err := a, g.allow(a.Tile)
	if err == nil {
		if priced, err = g.price(ctx, a); err != nil {
			err = &DeclinedError{Kind: Act, Err: err}
		}
	}
	if err != nil {
		// An admitted action stays admitted, even if its price has changed since, or its tile is gone.
		art, lookup := g.ledger.Lookup(ctx, a.ID)
		if lookup == nil && art.Fingerprint == a.Fingerprint {
			return art, nil
		}
		return Artifact{}, err
	}
	a.Asset, a.Cost, a.Cooldown = priced.Asset, priced.Cost, priced.Cooldown
	return g.ledger.Admit(ctx, a)
}

// allow refuses a tile that is none of the game's.
func (g *Gateway) allow(id fence.TileID) error {
	if g.cfg.Allow == nil {
		return nil
	}
	if err := g.cfg.Allow(id); err != nil {
		return &fence.ArgumentError{Field: "tile", Value: id, Want: "a tile of this game: " + err.Error()}
	}
	return nil
}

// Outcome returns the artifact of an action that the actor has presented before, without presenting it again: nothing
// is admitted, sent or spent. An artifact that is still open says that the outcome is not known yet. Calls count
// against ActRate.
//
// Errors: ErrUnknownAction if the ledger has no such action of that actor; a *fence.ArgumentError; a *LimitError; a
// *fence.StoreError.
func (g *Gateway) Outcome(ctx context.Context, actor, actionID string) (Artifact, error) {
	if err := validateName("actor", actor); err != nil {
		return Artifact{}, err
	}
	wait, ok := g.acts.take(actor)
	if err := g.shape(ctx, LimitError{Scope: ScopeActor, Kind: Ask, Actor: actor}, wait, ok); err != nil {
		return Artifact{}, err
	}
	art, err := g.ledger.Lookup(ctx, actionID)
	if err == nil && art.Actor != actor {
		return Artifact{}, ErrUnknownAction // an actor does not learn which IDs others have used
	}
	return art, err
}

func (g *Gateway) done(info DoneInfo) {
	g.counts.add(info)
	hook.Call(g.cfg.Hooks.Done, info)
}
