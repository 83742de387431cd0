package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/recovery"
)

// reappend appends again what a failover lost: the same batches, sequences and chains, before anything new.
func (o *tileOwner) reappend(ctx context.Context, lost []fence.Commit) {
	for i, c := range lost {
		c.Install, c.Replicas = true, 0
		if i == len(lost)-1 {
			c.Replicas = fence.AllReplicas
		}
		if _, err := o.commit(ctx, c); err != nil {
			o.report(err) // the pending batch is presented again, and the answer says where the stream ends by then
			return
		}
	}
	o.cfg.Logger.Warn("tile appended batches again that a failover had lost", "epoch", o.ownership.grant.Epoch,
		"batches", len(lost))
	hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Reappended: len(lost), At: o.history.Position})
}

// repair acquires the tile anew, under an epoch above all that the store has shown. From memory, it replaces a history
// that this owner does not know. From the store, it takes up the history of a later owner that the authority, restored
// to an older state, has forgotten: that one may have served, so a rebase on this owner's state would void what every
// replica has confirmed. The pending batch is abandoned with the history it may be part of; its intents are
// resolved again.
func (o *tileOwner) repair(ctx context.Context, from source, i *incident) error {
	replaces := &i.seen.Position
	if i.Event == recovery.Damaged {
		replaces = nil // where the stream ends cannot be read
	} else if err := o.foldLanded(ctx, i.seen.Position); err != nil {
		return err
	}
	return o.acquireAnew(ctx, from, i.seen, replaces)
}

// foldLanded folds the pending batch if the stream ends with it, though no answer has said so. Its clients are answered
// later, but others know of it: watchers were shown it, and callers of Confirm know that the replicas have it.
func (o *tileOwner) foldLanded(ctx context.Context, end fence.Position) error {
	if o.pending == nil || o.pending.commit.Refresh() || end != o.pending.commit.Next() {
		return nil
	}
	if err := o.fold(ctx, end); err != nil {
		return err
	}
	o.moveTo(end)
	return nil
}

// acquireAnew is repair. seen is what the store has, as far as this owner knows; replaces is where the history ends
// that a rebase from memory is for; nil: it cannot be read.
func (o *tileOwner) acquireAnew(
	ctx context.Context, from source, seen fence.Owner, replaces *fence.Position,
) error {
	back, before := o.inbox.read().State, o.history.Position
	if seen.Position.IsZero() {
		from = fromMemory // there is no history but this owner's
	}
	o.abandon()
	o.acquisition.saw(seen)
	o.acquisition.replaces = replaces
	o.repairing = func(ctx context.Context) error { return o.acquired(ctx, from, seen, back, before) }
	return o.finishRepair(ctx)
}

// finishRepair goes on with the repair that has begun. errDrained when ctx ends before: then it is to be called again
// before anything else is presented, since what the repair has presented may be in a store.
func (o *tileOwner) finishRepair(ctx context.Context) error {
	err := o.repairing(ctx)
	if !errors.Is(err, errDrained) {
		o.repairing = nil
	}
	return err
}

// acquired acquires the tile, and serves again in the state that it was in.
func (o *tileOwner) acquired(
	ctx context.Context, from source, seen fence.Owner, back State, before fence.Position,
) error {
	last := seen.Position
	got, err := o.acquisition.run(ctx, from)
	if err != nil {
		return err
	}
	o.begin(got, back)
	if got.source == fromStore {
		o.cfg.Logger.Warn("tile was replayed from a later owner that the authority had forgotten",
			"epoch", o.ownership.grant.Epoch, "at", o.history.Position)
		hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Rejoined: true, At: o.history.Position})
		return nil
	}
	o.cfg.Logger.Warn("tile was rebased on its owner's state", "epoch", o.ownership.grant.Epoch, "voided", last,
		"at", o.history.Position)
	hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Rebased: true, Voided: last, At: o.history.Position})
	if last.IsZero() && !seen.Present() {
		o.restored(RestoredInfo{Tile: o.tile, From: before, SnapshotTick: o.history.Tick, Taken: time.Now(),
			Exact: true, FromMemory: true})
	}
	return nil
}

// abandon begins a repair: the pending batch is given up, and its intents are resolved again.
func (o *tileOwner) abandon() {
	o.inbox.enter(Healing, o.ownership.grant.Epoch)
	if o.pending == nil {
		return
	}
	for i := range o.pending.submissions {
		o.pending.submissions[i].presented = true
	}
	o.inbox.requeue(o.pending.submissions)
	o.pending = nil
}
