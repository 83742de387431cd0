package admission_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// The parts that are made for each other, though neither package knows the other.
var (
	_ admission.Forwarder = (*tilehttp.Client)(nil)
	_ admission.Router    = (*route.Router)(nil)
)

const here fence.TileID = 0x85283473fffffff

// rig is a gateway over an embedded ledger and a world that is a fake.
type rig struct {
	t      testing.TB
	store  admission.Store
	ledger *admission.AdmissionLedger
	world  *world
	router *route.Router
	gate   *admission.Gateway
}

func newRig(t testing.TB, cfg *admission.GatewayConfig) *rig {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return newRigOver(t, store, newWorld("a"), cfg)
}

func newRigOver(t testing.TB, store admission.Store, w *world, cfg *admission.GatewayConfig) *rig {
	t.Helper()
	r := &rig{t: t, store: store, world: w}
	var err error
	r.ledger, err = admission.New(store, nil)
	require.NoError(t, err)
	r.router, err = route.NewRouter(new(route.Table), w, nil)
	require.NoError(t, err)
	c := admission.GatewayConfig{Unlimited: true}
	if cfg != nil {
		c = *cfg
	}
	r.gate, err = admission.NewGateway(r.ledger, r.router, w, admission.ClientPrices, &c)
	require.NoError(t, err)
	return r
}

func (r *rig) credit(owner string, amount admission.Amount) {
	r.t.Helper()
	require.NoError(r.t, r.ledger.Credit(r.t.Context(), owner, "card", amount, admission.NewActionID()))
}

func (r *rig) balance(owner string) admission.Amount {
	r.t.Helper()
	a, err := r.ledger.Balance(context.WithoutCancel(r.t.Context()), owner, "card")
	require.NoError(r.t, err)
	return a.Balance
}

func (r *rig) lookup(id string) admission.Artifact {
	r.t.Helper()
	a, err := r.ledger.Lookup(context.WithoutCancel(r.t.Context()), id)
	require.NoError(r.t, err)
	return a
}

func play(id string) admission.Action {
	return admission.Action{ID: id, Actor: "ann", Asset: "card", Cost: 1, Tile: here, Body: []byte("fireball")}
}

func TestActIsAppliedOnceAndAnsweredForEver(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 2)
	r.world.why = "a hit"
	first, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, first.Outcome)
	assert.Equal(t, "a hit", first.Why)
	assert.NotEmpty(t, first.AdmissionID)
	r.world.down = true // a settled action needs no tile
	for range 3 {
		again, err := r.gate.Act(t.Context(), play("x"))
		require.NoError(t, err)
		assert.Equal(t, first.AdmissionID, again.AdmissionID)
		assert.Equal(t, stream.Applied, again.Outcome)
		assert.Empty(t, again.Why, "the ledger does not record it")
	}
	assert.Equal(t, 1, r.world.applied["x"])
	assert.Equal(t, admission.Amount(1), r.balance("ann"))
	stats := r.gate.Stats()
	assert.Equal(t, uint64(4), stats.Acts.Applied)
}

func TestActThatCannotBePaidNeverReachesATile(t *testing.T) {
	r := newRig(t, nil)
	for range 2 {
		art, err := r.gate.Act(t.Context(), play("x"))
		require.NoError(t, err)
		assert.Equal(t, stream.Rejected, art.Outcome)
		assert.Equal(t, admission.ReasonBalance, art.Reason)
		r.credit("ann", 1)
	}
	assert.Zero(t, r.world.calls)
}

func TestActRefusesAnotherRequestUnderTheSameID(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 9)
	r.credit("bob", 9)
	_, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	for name, change := range map[string]func(*admission.Action){
		"body":     func(a *admission.Action) { a.Body = []byte("other") },
		"cost":     func(a *admission.Action) { a.Cost = 2 },
		"tile":     func(a *admission.Action) { a.Tile++ },
		"actor":    func(a *admission.Action) { a.Actor = "bob" },
		"cooldown": func(a *admission.Action) { a.Cooldown = time.Second },
	} {
		a := play("x")
		change(&a)
		art, err := r.gate.Act(t.Context(), a)
		var reused *admission.ReusedError
		require.ErrorAs(t, err, &reused, name)
		assert.Equal(t, admission.Artifact{}, art, "a client that guessed the ID does not see the artifact")
	}
	assert.Equal(t, admission.Amount(8), r.balance("ann"))
	assert.Equal(t, admission.Amount(9), r.balance("bob"))
}

func TestRedirectOnceIsFollowedInBand(t *testing.T) {
	for name, names := range map[string]bool{"the tile names the owner": true, "the router knows better": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.credit("ann", 1)
			_, err := r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
			require.NoError(t, err)
			r.world.move("b", names)
			art, err := r.gate.Act(t.Context(), play("x"))
			require.NoError(t, err)
			assert.Equal(t, stream.Applied, art.Outcome)
			outcome, err := r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
			require.NoError(t, err)
			assert.Equal(t, stream.Applied, outcome.Outcome)
			assert.Equal(t, admission.Stats{
				Moves: admission.Tally{Applied: 2}, Acts: admission.Tally{Applied: 1}, Redirects: 1, Resubmits: 1,
			}, r.gate.Stats(), "and the router has learned it")
		})
	}
}

func TestRedirectTwiceGivesTheCostBack(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 1)
	r.world.answers = []error{&tile.RedirectError{Tile: here, Epoch: 2, Contact: "b"},
		&tile.RedirectError{Tile: here, Epoch: 3, Contact: "c"}}
	art, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	assert.Equal(t, stream.Redirected, art.Outcome)
	assert.True(t, art.Refunded)
	assert.Equal(t, admission.Amount(1), r.balance("ann"))
	again, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	assert.Equal(t, stream.Redirected, again.Outcome)
	assert.Zero(t, r.world.applied["x"])

	r.world.answers = []error{&tile.RedirectError{Tile: here, Epoch: 4, Contact: "b"},
		&tile.RedirectError{Tile: here, Epoch: 5, Contact: "c"}}
	outcome, err := r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
	require.NoError(t, err)
	assert.Equal(t, stream.Redirected, outcome.Outcome)
}

// TestRedirectAfterDoubtIsNoRedirected: a process that was asked before may have applied the action, so
// a redirect by the processes that are asked now decides nothing.
func TestRedirectAfterDoubtIsNoRedirected(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 1)
	r.world.loseReplies = 1
	_, err := r.gate.Act(t.Context(), play("x"))
	require.ErrorIs(t, err, admission.ErrPending)
	twice := []error{&tile.RedirectError{Tile: here, Epoch: 2, Contact: "b"},
		&tile.RedirectError{Tile: here, Epoch: 3, Contact: "c"}}
	r.world.answers = twice
	_, err = r.gate.Act(t.Context(), play("x"))
	require.ErrorIs(t, err, admission.ErrPending)
	require.ErrorIs(t, err, tile.ErrRedirect)
	art, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, art.Outcome)
	assert.Equal(t, 1, r.world.applied["x"])
	assert.Zero(t, r.balance("ann"))

	// The same within one call: handed over while being committed, then redirected.
	r.credit("ann", 1)
	r.world.answers = []error{&tile.UnresolvedError{Tile: here, Epoch: 2, Contact: "b"},
		&tile.RedirectError{Tile: here, Epoch: 3, Contact: "c"}}
	_, err = r.gate.Act(t.Context(), play("y"))
	require.ErrorIs(t, err, admission.ErrPending)
	assert.Zero(t, r.balance("ann"))
}

func TestPendingWhenTheTileCannotSay(t *testing.T) {
	overloaded := tile.ErrOverloaded
	for name, c := range map[string]struct {
		answer error
		sure   bool // nothing was delivered
	}{
		"overloaded":      {overloaded, true},
		"never sent":      {&fence.StoreError{Op: "x", Outcome: fence.ErrNotApplied, Err: errors.New("refused")}, true},
		"connection lost": {errors.New("reset"), false},
		"unresolved":      {&tile.UnresolvedError{Tile: here}, false},
		"two minds":       {errors.Join(fence.ErrNotApplied, &tile.UnresolvedError{Tile: here}), false},
		"no outcome":      {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.credit("ann", 1)
			r.world.answers = []error{c.answer}
			_, err := r.gate.Act(t.Context(), play("x"))
			var pending *admission.PendingError
			require.ErrorAs(t, err, &pending)
			assert.Equal(t, "x", pending.Artifact.ActionID)
			if c.answer != nil {
				require.ErrorIs(t, err, c.answer)
			}
			art := r.lookup("x")
			assert.True(t, art.Open())
			assert.Equal(t, map[bool]int{true: 0, false: 1}[c.sure], art.Attempts)
			assert.Zero(t, r.balance("ann"), "the spend stands while the action is open")

			art, err = r.gate.Act(t.Context(), play("x"))
			require.NoError(t, err)
			assert.Equal(t, stream.Applied, art.Outcome)
			assert.Equal(t, 1, r.world.applied["x"])
			assert.Zero(t, r.balance("ann"))
		})
	}
}

func TestMalformedForTheTileIsRejectedAndGivenBack(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 1)
	r.world.answers = []error{&fence.ArgumentError{Field: "body"}}
	art, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	assert.Equal(t, stream.Rejected, art.Outcome)
	assert.True(t, art.Refunded)
	assert.Equal(t, admission.Amount(1), r.balance("ann"))
}

func TestNoOwner(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 1)
	r.world.owner = ""
	_, err := r.gate.Act(t.Context(), play("x"))
	require.ErrorIs(t, err, admission.ErrPending)
	require.ErrorIs(t, err, route.ErrNoRoute)
	assert.Zero(t, r.lookup("x").Attempts)
	_, err = r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
	require.ErrorIs(t, err, route.ErrNoRoute)

	// A former owner that knows no other, and a router that still names it.
	r.world.owner = "a"
	r.world.answers = []error{&tile.RedirectError{Tile: here}}
	_, err = r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
	require.ErrorIs(t, err, route.ErrNoRoute)
}

func TestOutcomeIsRecordedAfterTheCallerLeft(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 1)
	ctx, cancel := context.WithCancel(t.Context())
	r.world.afterApply = cancel
	art, err := r.gate.Act(ctx, play("x"))
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, art.Outcome)
	assert.Equal(t, stream.Applied, r.lookup("x").Outcome)
}

func TestPrice(t *testing.T) {
	price := admission.Amount(3)
	var refuse error
	r := newRig(t, nil)
	gate, err := admission.NewGateway(r.ledger, r.router, r.world,
		func(_ context.Context, a admission.Action) (admission.Action, error) {
			a.Asset, a.Cost = "card", price
			a.ID, a.Actor, a.Tile, a.Body = "other", "bob", 9, nil // not its business
			return a, refuse
		}, &admission.GatewayConfig{Unlimited: true})
	require.NoError(t, err)
	r.gate = gate
	r.credit("ann", 5)
	ask := play("x")
	ask.Asset, ask.Cost = "", 0
	r.world.loseReplies = 1
	_, err = r.gate.Act(t.Context(), ask)
	require.ErrorIs(t, err, admission.ErrPending)
	assert.Equal(t, admission.Amount(2), r.balance("ann"))

	price = 4
	r.world.loseReplies = 1
	_, err = r.gate.Act(t.Context(), ask)
	require.ErrorIs(t, err, admission.ErrPending, "a change of price is no change of request")
	refuse = errors.New("not for sale any more")
	art, err := r.gate.Act(t.Context(), ask)
	require.NoError(t, err, "nor is it refused once admitted")
	assert.Equal(t, admission.Amount(3), art.Cost)
	assert.Equal(t, "fireball", string(r.world.last.Body))
	assert.Equal(t, "ann", r.world.last.Actor)

	ask.ID = "y"
	_, err = r.gate.Act(t.Context(), ask)
	require.ErrorIs(t, err, admission.ErrDeclined)
	require.ErrorIs(t, err, refuse)
	_, err = r.ledger.Lookup(t.Context(), "y")
	require.ErrorIs(t, err, admission.ErrUnknownAction)
	assert.Equal(t, 1, r.world.applied["x"])
}

func TestMove(t *testing.T) {
	no := errors.New("into a wall")
	r := newRig(t, &admission.GatewayConfig{Unlimited: true, CheckMove: func(_ context.Context, in tile.Intent) error {
		if string(in.Body) == "wall" {
			return no
		}
		return nil
	}})
	move := tile.Intent{Tile: here, Actor: "ann", Body: []byte("north")}
	r.world.why = "a clear path"
	result, err := r.gate.Move(t.Context(), move)
	require.NoError(t, err)
	assert.Equal(t, tile.Result{Outcome: stream.Applied, Why: "a clear path"}, result)

	wall := move
	wall.Body = []byte("wall")
	_, err = r.gate.Move(t.Context(), wall)
	require.ErrorIs(t, err, no)
	require.ErrorIs(t, err, admission.ErrDeclined)

	paid := move
	paid.ActionID = "x"
	_, err = r.gate.Move(t.Context(), paid)
	require.ErrorIs(t, err, fence.ErrInvalidArgument, "an action ID would take a paid action's place")

	for _, bad := range []tile.Intent{{Actor: "ann"}, {Tile: here}, {Tile: here, Actor: "a\x00"},
		{Tile: here, Actor: "a", Body: make([]byte, 5000)}} {
		_, err = r.gate.Move(t.Context(), bad)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	r.world.answers = []error{tile.ErrOverloaded}
	_, err = r.gate.Move(t.Context(), move)
	require.ErrorIs(t, err, tile.ErrOverloaded)
	require.ErrorIs(t, err, admission.ErrForward)
	assert.Equal(t, admission.Tally{Applied: 1, Overloaded: 1, Failed: 6}, r.gate.Stats().Moves)
}

func TestRateIsPerActorAndKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, admission.GatewayConfig{MoveRate: admission.Rate{PerSecond: 2, Burst: 2},
			ActRate: admission.Rate{PerSecond: 1, Burst: 1}}.With(admission.Tuning{MaxActors: 2}))
		move := func(actor string) error {
			_, err := r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: actor})
			return err
		}
		require.NoError(t, move("ann"))
		require.NoError(t, move("ann"))
		var limited *admission.LimitError
		require.ErrorAs(t, move("ann"), &limited)
		assert.Equal(t, 500*time.Millisecond, limited.RetryAfter)
		require.NoError(t, move("bob"))
		r.credit("ann", 2)
		_, err := r.gate.Act(t.Context(), play("x"))
		require.NoError(t, err, "moves and actions do not share a bucket")
		_, err = r.gate.Act(t.Context(), play("y"))
		require.ErrorIs(t, err, admission.ErrLimited)
		assert.Equal(t, admission.Amount(1), r.balance("ann"), "nothing is spent above the rate")
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, move("ann"))
		require.ErrorIs(t, move("ann"), admission.ErrLimited)

		require.NoError(t, move("cid"))
		require.NoError(t, move("dee"))
		require.NoError(t, move("ann"), "only so many actors are remembered")
	})
}

func TestExpiredActionIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.credit("ann", 3)
		r.world.answers = []error{tile.ErrOverloaded, errors.New("reset")}
		_, err := r.gate.Act(t.Context(), play("never sent"))
		require.ErrorIs(t, err, admission.ErrPending)
		_, err = r.gate.Act(t.Context(), play("in doubt"))
		require.ErrorIs(t, err, admission.ErrPending)
		calls := r.world.calls
		time.Sleep(5*time.Minute + time.Second)

		art, err := r.gate.Act(t.Context(), play("never sent"))
		require.NoError(t, err)
		assert.Equal(t, stream.Rejected, art.Outcome)
		assert.True(t, art.Refunded)
		assert.Equal(t, admission.Amount(2), r.balance("ann"))

		for range 2 {
			_, err = r.gate.Act(t.Context(), play("in doubt"))
			require.ErrorIs(t, err, admission.ErrExpired)
			require.ErrorIs(t, err, admission.ErrPending)
		}
		assert.Equal(t, calls, r.world.calls)
		assert.Equal(t, 1, r.lookup("in doubt").Attempts)
		_, err = r.ledger.Resolve(t.Context(), "in doubt", stream.Fizzled)
		require.NoError(t, err)
		art, err = r.gate.Act(t.Context(), play("in doubt"))
		require.NoError(t, err)
		assert.Equal(t, stream.Fizzled, art.Outcome, "an operator has the last word")
	})
}

// hung is a tile that never answers.
type hung struct{}

func (hung) Forward(ctx context.Context, _ string, _ tile.Intent) (tile.Result, error) {
	<-ctx.Done()
	return tile.Result{}, context.Cause(ctx)
}

func TestHungTile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.credit("ann", 1)
		gate, err := admission.NewGateway(r.ledger, r.router, hung{}, admission.ClientPrices, nil)
		require.NoError(t, err)
		began := time.Now()
		_, err = gate.Act(t.Context(), play("x"))
		require.ErrorIs(t, err, admission.ErrPending)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, 1, r.lookup("x").Attempts, "it may have been delivered")
	})
}

func TestSweepFinishesWhatWasLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		swept := make(chan admission.SweepInfo, 8)
		r := newRig(t,
			&admission.GatewayConfig{Hooks: admission.Hooks{Swept: func(i admission.SweepInfo) { swept <- i }}})
		r.credit("ann", 500)
		const n = 130
		for i := range n { // admitted by a gateway that died then
			a := play(admission.NewActionID())
			a.Body = []byte{byte(i)}
			_, err := r.ledger.Admit(t.Context(), a)
			require.NoError(t, err)
		}
		info, err := r.gate.Sweep(t.Context())
		require.NoError(t, err)
		assert.Zero(t, info.Found, "too young")
		<-swept

		r.world.answers = []error{errors.New("reset")}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		time.Sleep(20 * time.Second)
		go func() { ended <- r.gate.Run(ctx) }()
		info = <-swept
		assert.Equal(t, n, info.Found)
		assert.Equal(t, n-1, info.Resolved)
		for info = range swept {
			if info.Found > 0 {
				break
			}
		}
		assert.Equal(t, 1, info.Resolved)
		assert.Equal(t, 1, info.Found)
		cancel()
		require.NoError(t, <-ended)
		assert.Len(t, r.world.applied, n)
		for _, times := range r.world.applied {
			assert.Equal(t, 1, times)
		}
		ids, err := r.ledger.Pending(t.Context(), time.Time{}, time.Now().Add(time.Hour), 10)
		require.NoError(t, err)
		assert.Empty(t, ids)
	})
}

// TestTilesThatDoNotExist: they are refused before anything is spent or sent; what was admitted before goes on.
func TestTilesThatDoNotExist(t *testing.T) {
	var gone error
	r := newRig(t, &admission.GatewayConfig{Unlimited: true,
		Allow: func(fence.TileID) error { return gone }})
	r.credit("ann", 5)
	r.world.loseReplies = 1
	_, err := r.gate.Act(t.Context(), play("before"))
	require.ErrorIs(t, err, admission.ErrPending)
	balance := r.balance("ann")

	gone = errors.New("it has sunk")
	calls := r.world.calls
	_, err = r.gate.Act(t.Context(), play("after"))
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	require.ErrorContains(t, err, "it has sunk")
	_, err = r.gate.Move(t.Context(), tile.Intent{Tile: play("x").Tile, Actor: "ann"})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	assert.Equal(t, calls, r.world.calls, "nothing was sent")
	assert.Equal(t, balance, r.balance("ann"), "nothing was spent")

	art, err := r.gate.Act(t.Context(), play("before"))
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, art.Outcome)
	assert.Equal(t, balance, r.balance("ann"))
}

// TestPriceMustBeChosen: without a price function there is no gateway; that clients name their prices must be said.
func TestPriceMustBeChosen(t *testing.T) {
	r := newRig(t, nil)
	for _, cfg := range []*admission.GatewayConfig{nil, {}, {Unlimited: true}} {
		_, err := admission.NewGateway(r.ledger, r.router, r.world, nil, cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
		require.ErrorContains(t, err, "ClientPrices")
	}
}

func TestGatewayArguments(t *testing.T) {
	r := newRig(t, nil)
	_, err := admission.New(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	for _, c := range []struct {
		field string
		cfg   admission.GatewayConfig
	}{
		{"ForwardTimeout", admission.GatewayConfig{ForwardTimeout: -1, RetryWindow: -1, SweepAge: -1}},
		{"RetryWindow", admission.GatewayConfig{RetryWindow: time.Microsecond}},
		{"MoveRate", admission.GatewayConfig{MoveRate: admission.Rate{PerSecond: -1},
			ActRate: admission.Rate{Burst: -1}}},
		{"ActRate", admission.GatewayConfig{ActRate: admission.Rate{Burst: -1}}},
		{"TileRate", admission.GatewayConfig{TileRate: admission.Rate{PerSecond: -1},
			TakeoverRate: admission.Rate{PerSecond: -1}}},
		{"TakeoverRate", admission.GatewayConfig{TakeoverRate: admission.Rate{Burst: -1}}},
	} {
		_, err := admission.NewGateway(r.ledger, r.router, r.world, admission.ClientPrices, &c.cfg)
		var bad *fence.ArgumentError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, c.field, bad.Field, "the same field each time")
	}
	_, err = admission.NewGateway(nil, r.router, r.world, admission.ClientPrices, nil)
	require.ErrorContains(t, err, "ledger")
	_, err = admission.NewGateway(r.ledger, nil, r.world, admission.ClientPrices, nil)
	require.ErrorContains(t, err, "router")
	_, err = admission.NewGateway(r.ledger, r.router, nil, admission.ClientPrices, nil)
	require.ErrorContains(t, err, "forwarder")
	for _, bad := range []admission.Action{
		{}, {ID: "x"}, {ID: "x", Actor: "a", Asset: "b"},
		{ID: "x", Actor: "a", Asset: "b", Tile: 1, Cost: admission.MaxAmount + 1},
		{ID: "x", Actor: "a", Asset: "b", Tile: 1, Cooldown: -1}, {ID: "a\nb", Actor: "a", Asset: "b", Tile: 1},
		{ID: "x", Actor: "\xff", Asset: "b", Tile: 1}, {ID: "x", Actor: "a", Asset: "b\ufffd", Tile: 1},
		{ID: "x", Actor: "a", Tile: 1},
	} {
		_, err := r.gate.Act(t.Context(), bad)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, "%+v", bad)
	}
}
