package admission

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
)

// Config holds the optional settings of an AdmissionLedger. Nil and the zero value are valid.
type Config struct {
	Logger *slog.Logger // nil discards
	Hooks  Hooks        // Admitted and Settled are called
}

// AdmissionLedger is the durable record of economic actions: it spends at most once per action ID and
// gives every action exactly one terminal outcome, the same one for every caller, for ever. See the
// package comment for what that holds against. It keeps no state of its own, so any number of ledgers in
// any number of processes may share a Store. Safe for concurrent use.
type AdmissionLedger struct {
	store Store
	calls *overload.Control // of the store, for actions
	log   *slog.Logger
	hooks Hooks
}

// Bounds of the store's calls. A store that gets more at once than it can do makes all of them wait, until none has its
// answer before its caller leaves. An action that was admitted goes before others, and is not refused: what it cost
// should not lie idle.
const (
	callsAtOnce  = 32
	callsWaiting = 4096
	callTarget   = 250 * time.Millisecond // in which a call should begin
)

// turn waits until the store may be called, and says how to end that. limit is whose call it is, and the error if the
// store has too much to do. What is owed is not below a rate of anybody's: for that, and if ctx ends first, the error
// is a *fence.StoreError.
func (l *AdmissionLedger) turn(ctx context.Context, class overload.Class, op string, limit LimitError) (
	done func(), err error,
) {
	err = l.calls.Enter(ctx, overload.Request{Holder: limit.Actor, Class: class})
	if late, ok := errors.AsType[*overload.RefusedError](err); ok && class != overload.Owed {
		limit.Scope, limit.RetryAfter = ScopeLedger, late.After
		return nil, &limit
	}
	if err != nil {
		return nil, &fence.StoreError{Op: op, Outcome: fence.ErrNotApplied, Err: err}
	}
	return func() { l.calls.Leave(time.Now()) }, nil
}

// New returns a ledger over store. It does no I/O. A nil store is a *fence.ArgumentError.
func New(store Store, cfg *Config) (*AdmissionLedger, error) {
	if store == nil {
		return nil, &fence.ArgumentError{Field: "store", Value: nil,
			Want: "a ledger store, such as one of sqliteledger or dynamoledger"}
	}
	c := setting.Of(cfg)
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return &AdmissionLedger{store: store, calls: overload.New(callsAtOnce, callsWaiting, callTarget), log: log,
		hooks: c.Hooks}, nil
}

// Admit spends the action's cost and records the action, in one step, unless its ID is known: then the
// artifact it already has is returned (Duplicate set) and nothing is spent. An action its account cannot
// pay for is recorded as rejected, and stays so when the balance grows.
//
// An open artifact means: forward Artifact.Intent to the tile, then Resolve. If it is a Duplicate,
// another client may be doing that already: call Attempt first.
//
// Errors: a *fence.ArgumentError; a *LimitError of ScopeLedger when the ledger has too much to do, and nothing was
// spent; a *ReusedError when the ID belongs to another request; a *fence.StoreError, after which the same call is safe
// and settles the question.
func (l *AdmissionLedger) Admit(ctx context.Context, a Action) (Artifact, error) {
	began := time.Now()
	art, err := l.admit(ctx, a)
	hook.Call(l.hooks.Admitted, AdmitInfo{ActionID: a.ID, Duplicate: art.Duplicate, Outcome: art.Outcome,
		Reason: art.Reason, Took: time.Since(began), Err: err})
	return art, err
}

func (l *AdmissionLedger) admit(ctx context.Context, a Action) (Artifact, error) {
	if err := a.Validate(); err != nil {
		return Artifact{}, err
	}
	if a.Fingerprint.IsZero() {
		a.Fingerprint = fingerprintOf(a)
	}
	done, err := l.turn(ctx, overload.Move, "admit "+a.ID,
		LimitError{Kind: Act, Actor: a.Actor, Tile: a.Tile})
	if err != nil {
		return Artifact{}, err
	}
	defer done()
	now, err := l.store.Now(ctx)
	if err != nil {
		return Artifact{}, err
	}
	id := fence.NewClaimID().String()
	want := Artifact{
		ActionID: a.ID, AdmissionID: AdmissionID(id), Fingerprint: a.Fingerprint,
		Actor: a.Actor, Asset: a.Asset, Cost: a.Cost, Cooldown: a.Cooldown.Truncate(time.Millisecond),
		Tile: a.Tile, Body: a.Body,
		Attempts: 1, AttemptID: AttemptID(id), Admitted: now, Attempted: now,
	}
	got, err := l.store.Admit(ctx, want)
	if errors.Is(err, fence.ErrUnknownOutcome) {
		got, err = l.reread(ctx, a.ID, err)
	}
	if err != nil {
		return Artifact{}, err
	}
	got.Duplicate = got.AdmissionID != want.AdmissionID
	if got.Fingerprint != want.Fingerprint {
		// The artifact belongs to another request: a client that guessed its ID must not see it.
		return Artifact{}, &ReusedError{What: "action", ID: a.ID}
	}
	return got, nil
}

// reread settles a write whose answer was lost by what the ledger now holds. What it does not hold may
// still be on its way, so then the first error stands.
func (l *AdmissionLedger) reread(ctx context.Context, actionID string, cause error) (Artifact, error) {
	got, err := l.store.Lookup(ctx, actionID)
	if err != nil {
		return Artifact{}, cause
	}
	l.log.Info("ledger answer was lost and read back", "action", actionID, "error", cause)
	return got, nil
}

// Attempt begins a delivery of an open action by a caller that did not itself admit it. From then on
// others know that it may have been delivered. The artifact's AttemptID is the caller's; if the artifact is
// terminal, there is nothing to deliver.
//
// Errors: ErrUnknownAction; a *fence.ArgumentError; a *fence.StoreError, after which the caller must not deliver.
func (l *AdmissionLedger) Attempt(ctx context.Context, actionID string) (Artifact, error) {
	if err := validateName("action ID", actionID); err != nil {
		return Artifact{}, err
	}
	done, err := l.turn(ctx, overload.Owed, "attempt "+actionID, LimitError{Kind: Act})
	if err != nil {
		return Artifact{}, err
	}
	defer done()
	now, err := l.store.Now(ctx)
	if err != nil {
		return Artifact{}, err
	}
	art, err := l.store.Attempt(ctx, actionID, AttemptID(fence.NewClaimID().String()), now)
	if err != nil {
		return Artifact{}, err
	}
	art.Duplicate = true
	return art, nil
}

// Withdraw takes the caller's attempt back when it has certainly delivered nothing: the tile's queue was
// full, or it could not be reached at all. art is the artifact by which the attempt was begun. Doing
// without is always safe; the action can then no longer be abandoned.
//
// Errors: ErrUnknownAction; a *fence.StoreError.
func (l *AdmissionLedger) Withdraw(ctx context.Context, art Artifact) error {
	done, err := l.turn(ctx, overload.Owed, "withdraw "+art.ActionID,
		LimitError{Kind: Act, Actor: art.Actor, Tile: art.Tile})
	if err != nil {
		return err
	}
	defer done()
	return l.store.Withdraw(ctx, art.ActionID, art.AttemptID)
}

// Resolve records the outcome that a tile gave the action. Exactly one outcome ever wins: if the action
// is terminal already, that artifact is returned, with whatever outcome it has, and no error.
//
// Errors: ErrUnknownAction; a *fence.ArgumentError; a *fence.StoreError, after which the same call is safe.
func (l *AdmissionLedger) Resolve(ctx context.Context, actionID string, outcome stream.Outcome) (Artifact, error) {
	if !outcome.Valid() {
		return Artifact{}, &fence.ArgumentError{Field: "outcome", Value: outcome,
			Want: "applied, fizzled, rejected or redirected"}
	}
	return l.settle(ctx, Settlement{ActionID: actionID, Outcome: outcome})
}

// Abandon ends an action as Rejected or Redirected and gives back what it spent, in one step. art is the
// artifact by which the caller began its attempt (from Admit, no Duplicate, or from Attempt), and the
// caller knows for certain that no tile has resolved the action or ever will: every process it was sent to
// said so. If another attempt may have delivered it, the artifact stays open and the error is
// ErrContested. A terminal action is returned as in Resolve.
//
// Errors: ErrContested, with the artifact; ErrBalanceLimit if the account has no room for the cost, and the action
// stays open; otherwise as Resolve.
func (l *AdmissionLedger) Abandon(ctx context.Context, art Artifact, outcome stream.Outcome) (Artifact, error) {
	switch {
	case !abandonable(outcome):
		return Artifact{}, &fence.ArgumentError{Field: "outcome", Value: outcome,
			Want: "rejected or redirected: no tile has resolved the action"}
	case art.AttemptID == "":
		return Artifact{}, &fence.ArgumentError{Field: "attempt ID", Value: "",
			Want: "the artifact that Admit or Attempt returned"}
	}
	return l.settle(ctx, Settlement{ActionID: art.ActionID, Outcome: outcome, Refund: true, Sole: art.AttemptID})
}

// abandonable reports whether an action whose cost is given back may have the outcome.
func abandonable(o stream.Outcome) bool { return o == stream.Rejected || o == stream.Redirected }

func (l *AdmissionLedger) settle(ctx context.Context, s Settlement) (Artifact, error) {
	if err := validateName("action ID", s.ActionID); err != nil {
		return Artifact{}, err
	}
	began := time.Now()
	art, err := l.settleInTurn(ctx, s)
	if errors.Is(err, fence.ErrUnknownOutcome) {
		art, err = l.rereadSettled(ctx, s.ActionID, err)
	}
	hook.Call(l.hooks.Settled, SettleInfo{ActionID: s.ActionID, Asked: s.Outcome, Outcome: art.Outcome,
		Refunded: art.Refunded,
		Took:     time.Since(began), Err: err})
	if err != nil {
		return art, err
	}
	art.Duplicate = true
	if art.Outcome != s.Outcome {
		l.log.Warn("action was settled with another outcome", "action", s.ActionID, "asked", s.Outcome, "outcome",
			art.Outcome)
	}
	return art, nil
}

func (l *AdmissionLedger) settleInTurn(ctx context.Context, s Settlement) (art Artifact, err error) {
	done, err := l.turn(ctx, overload.Owed, "settle "+s.ActionID, LimitError{Kind: Act})
	if err != nil {
		return Artifact{}, err
	}
	defer done()
	if s.At, err = l.store.Now(ctx); err != nil {
		return Artifact{}, err
	}
	return l.store.Settle(ctx, s)
}

// rereadSettled settles a lost answer to a Settle; an artifact that is still open settles nothing.
func (l *AdmissionLedger) rereadSettled(ctx context.Context, actionID string, cause error) (Artifact, error) {
	art, err := l.reread(ctx, actionID, cause)
	if err == nil && art.Open() {
		return Artifact{}, cause
	}
	return art, err
}

// Lookup reads an action's artifact. Errors: ErrUnknownAction; a *fence.ArgumentError; a *LimitError of ScopeLedger; a
// *fence.StoreError.
func (l *AdmissionLedger) Lookup(ctx context.Context, actionID string) (Artifact, error) {
	if err := validateName("action ID", actionID); err != nil {
		return Artifact{}, err
	}
	done, err := l.turn(ctx, overload.Move, "look up "+actionID, LimitError{Kind: Ask})
	if err != nil {
		return Artifact{}, err
	}
	defer done()
	art, err := l.store.Lookup(ctx, actionID)
	art.Duplicate = err == nil
	return art, err
}

// Pending lists open actions whose last attempt was at from or later, and before the given time, the longest untouched
// first, at most limit (1 to 1000). The list may lag by seconds. To go on, list from the time of the last one, which is
// listed again. Call Attempt on each before delivering it.
//
// Errors: a *fence.ArgumentError; a *fence.StoreError.
func (l *AdmissionLedger) Pending(ctx context.Context, from, before time.Time, limit int) ([]PendingAction, error) {
	if limit < 1 || limit > 1000 {
		return nil, &fence.ArgumentError{Field: "limit", Value: limit, Want: "from 1 to 1000"}
	}
	return l.store.Pending(ctx, from, before, limit)
}

// Credit mints amount (1 to MaxAmount) units of asset for owner, once per creditID: a retry changes
// nothing. Derive the credit ID from what earned it (an order, a quest, an action being made good), so that
// every retry has the same one.
//
// Errors: a *ReusedError when the ID was used for another credit; ErrBalanceLimit; a *fence.ArgumentError; a
// *fence.StoreError, after which the same call is safe.
func (l *AdmissionLedger) Credit(ctx context.Context, owner, asset string, amount Amount, creditID string) error {
	c := Credit{ID: creditID, Owner: owner, Asset: asset, Amount: amount}
	if err := c.Validate(); err != nil {
		return err
	}
	var err error
	if c.At, err = l.store.Now(ctx); err != nil {
		return err
	}
	return l.store.Credit(ctx, c)
}

// Now is the clock of the ledger's store, by which all its times are. Errors: a *fence.StoreError.
func (l *AdmissionLedger) Now(ctx context.Context) (time.Time, error) { return l.store.Now(ctx) }

// Balance reads an account. One that was never touched is empty, and no error.
// Errors: a *fence.ArgumentError; a *fence.StoreError.
func (l *AdmissionLedger) Balance(ctx context.Context, owner, asset string) (Account, error) {
	if err := validateName("owner", owner); err != nil {
		return Account{}, err
	}
	if err := validateName("asset", asset); err != nil {
		return Account{}, err
	}
	return l.store.Balance(ctx, owner, asset)
}
