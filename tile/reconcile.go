package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// reconcile decides what a serving owner does about a commit that did not succeed. The rules are those
// of the commit protocol (docs/protocol.md). nil means: present the pending batch again.
func (o *tileOwner) reconcile(ctx context.Context, err error) error {
	if damage, ok := errors.AsType[*fence.CorruptError](err); ok {
		return o.overwrite(ctx, damage)
	}
	refused, ok := errors.AsType[*fence.RefusedError](err)
	if !ok {
		o.later.Failed()
		if retry.Able(err) {
			return nil // frozen until the store answers
		}
		return err
	}
	verr := o.whose(ctx, refused)
	switch forgotten := errors.Is(verr, errForgotten); {
	case errors.Is(verr, ErrSuperseded):
		return verr
	case verr != nil && !forgotten:
		return nil //nolint:nilerr // the authority cannot be asked: neither serve nor stand down
	case o.title.outlived(refused):
		return o.outlive(ctx, refused)
	case o.title.goneOn(refused):
		switch err := o.acquisition.giveWay(ctx, refused); {
		case errors.Is(err, ErrSuperseded):
			return err
		case errors.Is(err, errOutlived):
			return o.repair(ctx, fromStore, refused)
		default:
			o.report(err)
		}
		return nil // frozen until the copies say
	case forgotten:
		return o.repair(ctx, fromMemory, refused) // no other owner has the tile, but this epoch proves nothing any more
	}
	return o.makeGood(ctx, err, refused)
}

// makeGood restores what the store has lost of a tile that is this owner's, as the authority has just said.
func (o *tileOwner) makeGood(ctx context.Context, err error, refused *fence.RefusedError) error {
	if !refused.Current.Present() {
		o.pending.anew = true
	}
	switch {
	case errors.Is(err, fence.ErrNoOwner): // expired, deleted or lost
		o.pending.commit.Install, o.pending.commit.Replicas = true, fence.AllReplicas
		return nil
	case errors.Is(err, fence.ErrBehind):
		if lost, ok := o.kept.After(refused.Current.Position); ok {
			o.reappend(ctx, lost)
			return nil
		}
		return o.repair(ctx, fromMemory, refused)
	case errors.Is(err, fence.ErrReplay), errors.Is(err, fence.ErrForked):
		return o.repair(ctx, fromMemory, refused)
	}
	return err
}

// askOnceMore asks the authority again, and the durable store, after the pending batch has come into a store where
// there was no owner hash, and before anything of it is acknowledged. Every copy may have lost what another owner has
// left, also while this process slept between the authority's answer and its install: the store refuses nothing then.
// It reports whether the batch can be settled; if not, and err is nil, it is presented again, or was repaired.
func (o *tileOwner) askOnceMore(ctx context.Context) (known bool, err error) {
	err = o.title.verify(ctx, fence.Owner{})
	switch {
	case errors.Is(err, ErrSuperseded):
		return false, err
	case err != nil && !errors.Is(err, errForgotten):
		o.report(err)
		o.desk.update(func(s *Status) { s.Pending, s.Frozen = true, o.pending.formed })
		return false, nil
	case !o.belowCheckpoint(ctx):
		return true, nil
	}
	return false, o.repair(ctx, fromMemory, &fence.RefusedError{Reason: fence.ErrStale, Tile: o.tile,
		Epoch: o.title.grant.Epoch, Current: fence.Owner{Tile: o.tile, Epoch: o.title.grant.Epoch, Contact: o.contact,
			Position: o.pending.commit.Next()}})
}

// belowCheckpoint reports whether the durable store has the state of a later owner, of whom neither store nor authority
// has anything left. What this owner commits under its own epoch would be replaced by that state at the next take-over.
func (o *tileOwner) belowCheckpoint(ctx context.Context) bool {
	a := o.acquisition
	if a.writesThrough() {
		return false
	}
	at := a.durable.Ask(ctx, &a.beside)().At
	a.saw(fence.Owner{Position: at})
	return at.Epoch > o.title.grant.Epoch
}

// whose is verify after a refusal. Clients go to the owner that the store named until the authority has answered, and
// for as long as it is not decided which of the two it is.
func (o *tileOwner) whose(ctx context.Context, refused *fence.RefusedError) error {
	outlived := o.title.outlived(refused)
	if outlived {
		o.desk.yield(refused.Current)
	}
	err := o.title.verify(ctx, refused.Current)
	if !outlived && (err == nil || errors.Is(err, errForgotten)) {
		o.desk.resume()
	}
	return err
}

// outlive decides about a later owner that the authority, restored to an older state, does not know: it says that the
// tile is this owner's, or no process's. If the later owner moves its hash, it lives, and this one stands down. If it
// has not moved it for so long that an idle owner would have, what it has committed is taken up from the store.
func (o *tileOwner) outlive(ctx context.Context, refused *fence.RefusedError) error {
	before, now := o.later.Last, refused.Current
	o.later.Saw(now, o.lifeless()/2)
	switch {
	case before.Present() && now.Present() && now != before:
		o.cfg.Logger.Warn("the authority does not know the tile's later owner, which serves; was it restored to an "+
			"older state? this owner stands down", "epoch", o.title.grant.Epoch, "later", now.Epoch,
			"owner", now.Contact)
		return o.title.supersededBy(now)
	case o.later.Silent < o.lifeless():
		return nil
	}
	return o.repair(ctx, fromStore, refused)
}

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
	o.cfg.Logger.Warn("tile appended batches again that a failover had lost", "epoch", o.title.grant.Epoch,
		"batches", len(lost))
	hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Reappended: len(lost), At: o.history.Position})
}

// repair acquires the tile anew, under an epoch above all that the store has shown. From memory, it replaces a history
// that this owner does not know. From the store, it takes up the history of a later owner that the authority, restored
// to an older state, has forgotten: that one may have served, so a rebase on this owner's state would void what every
// replica has confirmed. The pending batch is abandoned with the history it may be part of; its intents are
// resolved again.
func (o *tileOwner) repair(ctx context.Context, from source, refused *fence.RefusedError) error {
	if err := o.foldLanded(ctx, refused.Current.Position); err != nil {
		return err
	}
	return o.acquireAnew(ctx, from, refused, &refused.Current.Position)
}

// foldLanded folds the pending batch if the stream ends with it, though no answer has said so. Its clients are answered
// later, but others know of it: watchers were shown it, and who asked the replicas was told that they have it.
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

// acquireAnew is repair. replaces is where the history ends that a rebase from memory is for; nil: it cannot be read.
func (o *tileOwner) acquireAnew(
	ctx context.Context, from source, refused *fence.RefusedError, replaces *fence.Position,
) error {
	back, last, before := o.desk.read().State, refused.Current.Position, o.history.Position
	if last.IsZero() {
		from = fromMemory // there is no history but this owner's
	}
	o.abandon()
	o.acquisition.saw(refused.Current)
	o.acquisition.replaces = replaces
	o.repairing = func(ctx context.Context) error { return o.acquired(ctx, from, refused, back, before) }
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
	ctx context.Context, from source, refused *fence.RefusedError, back State, before fence.Position,
) error {
	last := refused.Current.Position
	got, err := o.acquisition.run(ctx, from)
	if err != nil {
		return err
	}
	o.begin(got, back)
	if got.source == fromStore {
		o.cfg.Logger.Warn("tile was replayed from a later owner that the authority had forgotten",
			"epoch", o.title.grant.Epoch, "at", o.history.Position)
		hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Rejoined: true, At: o.history.Position})
		return nil
	}
	o.cfg.Logger.Warn("tile was rebased on its owner's state", "epoch", o.title.grant.Epoch, "voided", last,
		"at", o.history.Position)
	hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Rebased: true, Voided: last, At: o.history.Position})
	if last.IsZero() && !refused.Current.Present() {
		o.restored(RestoredInfo{Tile: o.tile, From: before, SnapshotTick: o.history.Tick, Taken: time.Now(),
			Exact: true, FromMemory: true})
	}
	return nil
}

// overwrite rebases the tile on this owner's state, above what is damaged or foreign in its stream, if the authority
// says that the tile is still this owner's. A follower or a successor could not read the stream any more; this owner
// has all that it has acknowledged in memory.
func (o *tileOwner) overwrite(ctx context.Context, damage *fence.CorruptError) error {
	switch err := o.title.verify(ctx, fence.Owner{}); {
	case errors.Is(err, ErrSuperseded):
		return err
	case err != nil && !errors.Is(err, errForgotten):
		return nil //nolint:nilerr // the authority cannot be asked: neither serve nor stand down
	}
	o.cfg.Logger.Error("the tile's stream is damaged; its owner goes on above the damage, from memory",
		"at", o.history.Position, "error", damage)
	return o.acquireAnew(ctx, fromMemory, &fence.RefusedError{Reason: fence.ErrForked, Tile: o.tile,
		Epoch: o.title.grant.Epoch, Current: fence.Owner{Tile: o.tile, Epoch: o.title.grant.Epoch, Contact: o.contact,
			Position: o.pending.commit.Next()}}, nil)
}

// abandon begins a repair: the pending batch is given up, and its intents are resolved again.
func (o *tileOwner) abandon() {
	o.desk.enter(Healing, o.title.grant.Epoch)
	if o.pending == nil {
		return
	}
	for i := range o.pending.submissions {
		o.pending.submissions[i].presented = true
	}
	o.desk.requeue(o.pending.submissions)
	o.pending = nil
}

// outshone acquires the tile anew if watchers were shown an epoch above this owner's, and the authority has forgotten
// that later owner: bridges and relays refuse what is of a lower epoch, for good. If the store has forgotten it too,
// this owner's state goes on above it. If not, the rebase, which names where this owner's history ends, is refused, and
// the later owner's state is taken up.
func (o *tileOwner) outshone(ctx context.Context, t *stream.Trimmed) error {
	own := o.title.grant.Epoch
	switch {
	case t == nil || t.Shown <= own:
		return nil
	case o.pending != nil && !o.pending.commit.Refresh():
		return nil // the stream may end with this batch, or without it; the next trim tells again
	case t.Shown.FarAbove(own): // consumers are many, and one that is wrong must not use the epochs up
		o.cfg.Logger.Error("a consumer of the stream tells an epoch that cannot be; it is ignored", "told", t.Shown,
			"epoch", own)
		return nil
	}
	switch err := o.title.verify(ctx, fence.Owner{}); {
	case errors.Is(err, ErrSuperseded):
		return err
	case err != nil && !errors.Is(err, errForgotten):
		return nil //nolint:nilerr // the authority cannot be asked; the next trim tells again
	}
	o.cfg.Logger.Error("watchers were shown an epoch that the authority has forgotten; the tile goes on above it",
		"shown", t.Shown, "epoch", own, "at", o.history.Position)
	o.title.saw(t.Shown)
	at := o.history.Position
	return o.acquireAnew(ctx, fromMemory, &fence.RefusedError{Reason: fence.ErrStale, Tile: o.tile, Epoch: own,
		Current: fence.Owner{Tile: o.tile, Epoch: own, Contact: o.contact, Position: at}}, &at)
}

// reseal makes a durable store whole that was restored to an older state, and lacks this owner's seal or entries that
// it has acknowledged. If the authority says that the tile is still this owner's, its state becomes the journal's base,
// which the pending batch then follows. What fails is tried again with the batch: the journal takes none before.
//
// A durable store that refuses the base has a later state, or another one at the same place: that of another owner, to
// whom a restored authority has granted this epoch too. It may have been acknowledged, so the tile is acquired anew
// from what the stores have, above both.
func (o *tileOwner) reseal(ctx context.Context) error {
	switch err := o.title.verify(ctx, fence.Owner{}); {
	case errors.Is(err, ErrSuperseded):
		return err
	case errors.Is(err, errForgotten): // the authority was restored as well: a new epoch and a rebase repair both
		return o.repair(ctx, fromMemory, &fence.RefusedError{Reason: fence.ErrNoOwner, Tile: o.tile,
			Epoch: o.title.grant.Epoch,
			Current: fence.Owner{Tile: o.tile, Epoch: o.title.grant.Epoch, Contact: o.contact,
				Position: o.pending.commit.Next()}})
	case err != nil:
		return nil //nolint:nilerr // the authority cannot be asked: neither serve nor stand down
	}
	blob, err := o.history.Blob()
	if err != nil {
		return err
	}
	err = o.acquisition.beginDurably(ctx, o.history.Position, blob)
	switch {
	case errors.Is(err, errStartOver):
		return o.repair(ctx, fromStore, refusedByJournal(err, o.tile, o.title.grant.Epoch, o.history.Position))
	case err == nil:
		o.cfg.Logger.Error("durable store was restored to an older state; the tile's state is in it again",
			"at", o.history.Position)
	}
	return nil //nolint:nilerr // logged, or tried again: the next append tells
}
