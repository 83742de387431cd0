package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// ReconcilerConfig holds the optional settings of a Reconciler. Nil and the zero value are valid.
type ReconcilerConfig struct {
	// RememberFor is the shortest tile.Limits.RememberFor in use, tile.DefaultRememberFor unless you have set it. If it
	// is longer than that of a tile, costs are given back to actions that the tile has applied and forgotten; so leave
	// it unset for RememberFor after a tile's TickInterval was shortened. Zero means that it is not known: outcomes are
	// found, and no cost is given back.
	RememberFor time.Duration
	// RetryWindow is the longest tile.Limits.RetryWindow in use. Zero means tile.DefaultRetryWindow, 5 minutes.
	RetryWindow time.Duration

	// MaxClockSkew bounds by how much the clocks of tile servers and ledger differ. Costs are given back to actions
	// that were admitted between RetryWindow + MaxClockSkew and RememberFor - MaxClockSkew ago. Zero means a fifth of
	// the difference, a minute by default.
	MaxClockSkew time.Duration
}

// Reconciler finds the outcomes of actions that are pending, from what the stores say. It asks no tile server and no
// gateway, so that no process can lie to it. Create one with NewReconciler. Safe for concurrent use, by several
// processes too.
//
// The evidence for an outcome is the tile's snapshot and stream, which hold the outcomes of the last RememberFor, once
// every replica has them too. Otherwise a master that is lost with the tile's owner could take back what the ledger
// already has.
//
// The evidence that an action never happened, so that its cost can be given back, is all of this:
//
//   - no tile may decide the action any more, because it was admitted more than RetryWindow ago;
//   - every tile that had decided it would remember it, because that was less than RememberFor ago;
//   - the owner that the authority names is the one that the owner hash names, and after both were read it has shown
//     that the store has all that it decided while it could decide the action: it has committed what it decided later,
//     or refreshed its hash at the end of the stream, on a master whose replicas confirm that. What it appends again
//     after a failover shows nothing. Or the tile was released, and the replicas confirm the end of the stream; or it
//     was never owned;
//   - snapshot and stream, read after that, do not have the action.
//
// Anything else leaves the action pending.
type Reconciler struct {
	authority fence.Authority
	store     StoreReader
	log       stream.Log
	cfg       ReconcilerConfig
}

// StoreReader is what a Reconciler asks of a fence.Store.
type StoreReader interface {
	route.OwnerReader
	Confirm(ctx context.Context, tile fence.TileID, at fence.Position) error
}

// NewReconciler returns a reconciler. authority is needed if cfg.RememberFor is set, and may be nil otherwise. It does
// no I/O. Errors: a *fence.ArgumentError.
func NewReconciler(
	authority fence.Authority, store StoreReader, log stream.Log, cfg *ReconcilerConfig,
) (*Reconciler, error) {
	c := setting.Of(cfg)
	c.RetryWindow = cmp.Or(c.RetryWindow, tile.DefaultRetryWindow)
	c.MaxClockSkew = cmp.Or(c.MaxClockSkew, max(0, c.RememberFor-c.RetryWindow)/5)
	least := c.RetryWindow + 2*c.MaxClockSkew
	var s setting.Check
	s.Refuse(store == nil || log == nil, "store", nil, "the coordination store, and a log")
	s.Refuse(c.RememberFor != 0 && authority == nil, "authority", nil,
		"the epoch authority: with RememberFor set, costs are given back")
	s.Refuse(c.RetryWindow < 0 || c.MaxClockSkew < 0 || c.RememberFor != 0 && c.RememberFor <= least, "RememberFor",
		c.RememberFor, fmt.Sprintf("more than RetryWindow and twice MaxClockSkew, %v: else never evidence", least))
	if s.Err != nil {
		return nil, s.Err
	}
	return &Reconciler{authority: authority, store: store, log: log, cfg: c}, nil
}

// Finding is what a Reconciler has found out about an action.
type Finding struct {
	Outcome stream.Outcome // that the tile gave the action; zero: the tile does not have it
	Never   bool           // the tile has not decided the action and never will: its cost may be given back
	Reason  error          // why neither is known; nil if one is
}

// Reasons of a Finding. They may be wrapped.
var (
	errNotThere  = errors.New("the tile's stream does not have the action")
	errTooEarly  = fmt.Errorf("%w, and the tile may decide it yet", errNotThere)
	errTooLate   = fmt.Errorf("%w, and the tile may have forgotten it", errNotThere)
	errNoCommits = fmt.Errorf("%w, and the owner that the authority names does not commit", errNotThere)
	errBehind    = fmt.Errorf("%w, and the owner has not committed what it decides now: what a failover lost may come",
		errNotThere)
	errSplit = fmt.Errorf("%w, and authority, owner hash and stream do not name one owner: if that stays so, "+
		"let another host take the tile over", errNotThere)

	errUnsure = fmt.Errorf("%w, and not every replica has what was read", errNotThere)

	errProvisional = errors.New("the tile's stream has an outcome, which a failover could still take back")
)

// Find finds the outcomes of open actions of one tile, in their order. now is the ledger's clock
// (AdmissionLedger.Now). Without evidence it takes up to 8 s. err says that the tile could not be read.
//
// Errors: those of tile.Outcomes, of fence.Authority and of StoreReader.
func (r *Reconciler) Find(
	ctx context.Context, now func(context.Context) (time.Time, error), id fence.TileID, actions []Artifact,
) ([]Finding, error) {
	began, err := now(ctx)
	if err != nil {
		return nil, err
	}
	decisions, err := tile.Outcomes(ctx, r.log, id)
	if err != nil {
		return nil, err
	}
	found := make([]Finding, len(actions))
	undecided := false
	for i := range actions {
		f, age := &found[i], began.Sub(actions[i].Admitted)
		f.Outcome = decisions.Outcomes[actions[i].ActionID]
		switch {
		case f.Outcome != 0:
		case r.cfg.RememberFor == 0:
			f.Reason = errNotThere
		case age <= r.cfg.RetryWindow+r.cfg.MaxClockSkew:
			f.Reason = errTooEarly
		case age >= r.cfg.RememberFor-r.cfg.MaxClockSkew:
			f.Reason = errTooLate
		default:
			undecided = true
		}
	}
	if err := r.confirm(ctx, id, decisions.End, found); err != nil || !undecided {
		return found, err
	}
	return found, r.refute(ctx, now, id, actions, found)
}

// confirm waits until the replicas have the history up to at, which the outcomes were read from. Without that they are
// no evidence.
func (r *Reconciler) confirm(ctx context.Context, id fence.TileID, at fence.Position, found []Finding) error {
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Outcome != 0 }) {
		return nil
	}
	err := r.store.Confirm(ctx, id, at)
	if err == nil || !errors.Is(err, fence.ErrUnconfirmed) {
		return err
	}
	for i := range found {
		if f := &found[i]; f.Outcome != 0 {
			*f = Finding{Reason: fmt.Errorf("%w: %w", errProvisional, err)}
		}
	}
	return nil
}

// refute looks for the evidence that actions without an outcome, and without a reason for that, never happened.
func (r *Reconciler) refute(
	ctx context.Context, now func(context.Context) (time.Time, error), id fence.TileID, actions []Artifact,
	found []Finding,
) error {
	known, reason, err := r.settled(ctx, id)
	if err != nil {
		return err
	}
	ended, err := now(ctx)
	if err != nil {
		return err
	}
	for i := range actions {
		f := &found[i]
		if f.Outcome != 0 || f.Reason != nil {
			continue
		}
		f.Outcome = known.Outcomes[actions[i].ActionID]
		switch {
		case f.Outcome != 0:
			*f = Finding{Reason: errProvisional} // the next call finds it, and confirms it
		case reason != nil:
			f.Reason = reason
		case ended.Sub(actions[i].Admitted) >= r.cfg.RememberFor-r.cfg.MaxClockSkew:
			f.Reason = errTooLate
		case !known.whole && !actions[i].Admitted.Add(r.cfg.RetryWindow).Before(known.Formed):
			f.Reason = errBehind
		default:
			f.Never = true
		}
	}
	return nil
}

// knowledge is what the stores have of a tile.
type knowledge struct {
	tile.Decisions
	whole bool // they have all that was decided; else what was decided until it was Formed
}

// settled reads what a tile has decided, once its owner has shown that it still is the owner. reason says why that is
// no evidence.
func (r *Reconciler) settled(ctx context.Context, id fence.TileID) (known knowledge, reason, err error) {
	grant, err := r.authority.Lookup(ctx, id)
	never := errors.Is(err, fence.ErrNeverOwned)
	if err != nil && !never {
		return known, nil, err
	}
	owner, err := r.store.Owner(ctx, id)
	switch {
	case err != nil:
		return known, nil, err
	case grant.Held() && owner.Epoch != grant.Epoch:
		return known, errSplit, nil
	case grant.Held():
		return r.shown(ctx, owner)
	}
	known.whole = true
	known.Decisions, err = tile.Outcomes(ctx, r.log, id)
	switch {
	case err != nil:
		return known, nil, err
	case never && (owner.Present() || !known.End.IsZero()), !never && known.End.Epoch != grant.Epoch:
		return known, errSplit, nil
	case never:
		return known, nil, nil
	}
	reason, err = r.replaced(ctx, id, known.End)
	return known, reason, err
}

// shown is settled for a tile with an owner.
func (r *Reconciler) shown(ctx context.Context, before fence.Owner) (known knowledge, reason, err error) {
	after, reason, err := r.awaitCommit(ctx, before)
	if reason != nil || err != nil {
		return known, reason, err
	}
	known.Decisions, err = tile.Outcomes(ctx, r.log, before.Tile)
	switch {
	case err != nil:
		return known, nil, err
	case known.End.Seq < before.Position.Seq:
		return known, errSplit, nil
	case after.Position != before.Position || known.End != after.Position:
		return known, nil, nil
	}
	// A store accepts a refresh only of an owner whose history ends where the stream does. But this one may have come
	// late, to a master that had been replaced.
	known.whole = true
	if reason, err = r.replaced(ctx, before.Tile, known.End); reason != nil || err != nil {
		return known, reason, err
	}
	now, err := r.store.Owner(ctx, before.Tile)
	if err == nil && (now.Epoch != after.Epoch || now.Tick < after.Tick) {
		reason = errSplit
	}
	return known, reason, err
}

// replaced asks whether the replicas have what was read, and whether the history still ends there. Otherwise a master
// that had been replaced while it was paused may have answered.
func (r *Reconciler) replaced(ctx context.Context, id fence.TileID, end fence.Position) (reason, err error) {
	if err := r.store.Confirm(ctx, id, end); errors.Is(err, fence.ErrUnconfirmed) {
		return fmt.Errorf("%w: %w", errUnsure, err), nil
	} else if err != nil {
		return nil, err
	}
	last, err := r.log.Last(ctx, id)
	if err == nil && last != end {
		reason = errSplit
	}
	return reason, err
}

// commitWithin is for how long the owner of a tile is watched until it commits.
const commitWithin = 5 * time.Second

// awaitCommit waits until an owner has committed, or refreshed its hash.
func (r *Reconciler) awaitCommit(ctx context.Context, before fence.Owner) (after fence.Owner, reason, err error) {
	within, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return after, nil, context.Cause(ctx)
		case <-within.Done():
			return after, errNoCommits, nil
		case <-time.After(100 * time.Millisecond):
		}
		after, err = r.store.Owner(ctx, before.Tile)
		switch {
		case err != nil:
			return after, nil, err
		case after.Epoch != before.Epoch:
			return after, errSplit, nil
		case after.Tick > before.Tick:
			return after, nil, nil
		}
	}
}

// Settle records what a Reconciler has found about an action: its outcome, or, if it never happened, that it is
// rejected and its cost given back, in one step. A finding without evidence changes nothing and is the error.
//
// Errors: f.Reason; otherwise as Resolve, and ErrBalanceLimit if the account has no room for the cost.
func (l *AdmissionLedger) Settle(ctx context.Context, actionID string, f Finding) (Artifact, error) {
	switch {
	case f.Never && f.Outcome == 0:
		return l.settle(ctx, Settlement{ActionID: actionID, Outcome: stream.Rejected, Refund: true})
	case f.Outcome != 0:
		return l.Resolve(ctx, actionID, f.Outcome)
	}
	return Artifact{}, cmp.Or(f.Reason, errNotThere)
}
