package tile

import (
	"context"
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/retry"
)

// own is the incident of an owner whose stream ends at a position of its own history.
func (o *tileOwner) own(e recovery.Event, at fence.Position) *incident {
	return &incident{Evidence: recovery.Evidence{Event: e}, seen: fence.Owner{Tile: o.tile,
		Epoch: o.ownership.grant.Epoch, Contact: o.contact, Position: at}}
}

// reasons are the store's refusals.
var reasons = map[error]recovery.Event{
	fence.ErrNoOwner: recovery.NoOwner, fence.ErrBehind: recovery.Behind, fence.ErrReplay: recovery.Replay,
	fence.ErrForked: recovery.Forked, fence.ErrStale: recovery.Stale,
}

// refusedBatch is the incident of a refusal.
func (o *tileOwner) refusedBatch(err error, refused *fence.RefusedError) *incident {
	i := &incident{err: err, seen: refused.Current}
	i.Event = reasons[refused.Reason]
	if o.ownership.outlived(refused) {
		i.Later = recovery.LaterSeen
	} else if o.ownership.goneOn(refused) {
		i.Earlier = recovery.EarlierSeen
	}
	if i.Event == recovery.Behind {
		i.lost, i.Kept = o.kept.After(refused.Current.Position)
	}
	return i
}

// reconcile decides what a serving owner does about a commit that did not succeed. nil means: present the pending
// batch again.
func (o *tileOwner) reconcile(ctx context.Context, err error) error {
	if damage, ok := errors.AsType[*fence.CorruptError](err); ok {
		i := o.own(recovery.Damaged, o.pending.commit.Next())
		i.err = damage
		return o.recover(ctx, i)
	}
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		return o.recover(ctx, o.refusedBatch(err, refused))
	}
	o.later.Failed()
	if retry.Able(err) {
		return nil // frozen until the store answers
	}
	return err
}

// recover carries out what package recovery decides about an incident. nil means that the owner goes on, and presents
// what is pending again.
func (o *tileOwner) recover(ctx context.Context, i *incident) error {
	for {
		switch a := recovery.Decide(&i.Evidence); a {
		case recovery.AskAuthority:
			o.askAuthority(ctx, i)
		case recovery.AskDurable:
			o.askDurable(ctx, i)
		case recovery.WatchLater:
			o.watchLater(i)
		case recovery.AskCopies:
			if o.acquisition.askCopies(ctx, i); i.undecided != nil {
				o.report(i.undecided)
			}
		case recovery.WriteBase:
			if taken, err := o.writeBase(ctx, i); !taken || err != nil {
				return err
			}
		default:
			return o.act(ctx, a, i)
		}
	}
}

// act carries out what ends an incident.
func (o *tileOwner) act(ctx context.Context, a recovery.Action, i *incident) error {
	switch a {
	case recovery.Wait:
		return nil
	case recovery.StandDown:
		return i.superseded
	case recovery.Settle:
		return i.settle()
	case recovery.InstallAnew: // expired, deleted or lost
		o.pending.anew = o.pending.anew || !i.seen.Present()
		o.pending.commit.Install, o.pending.commit.Replicas = true, fence.AllReplicas
		return nil
	case recovery.Reappend:
		o.pending.anew = o.pending.anew || !i.seen.Present()
		o.reappend(ctx, i.lost)
		return nil
	case recovery.Rebase:
		o.ownership.saw(i.shown)
		o.logRebase(i)
		return o.repair(ctx, fromMemory, i)
	case recovery.TakeUp:
		return o.repair(ctx, fromStore, i)
	}
	return i.err
}

// askAuthority asks whose the tile is. After a refusal, clients go to the owner that the store has named until the
// authority has answered, and for as long as it is not decided which of the two it is.
func (o *tileOwner) askAuthority(ctx context.Context, i *incident) {
	seen, redirects := fence.Owner{}, i.Event.Refusal()
	if redirects {
		seen = i.seen
	}
	if i.Later != recovery.NoLater {
		o.inbox.yield(seen)
	}
	err := o.ownership.ask(ctx, i, seen)
	switch i.Authority {
	case recovery.Silent:
		if i.Event == recovery.InstalledAnew {
			o.report(err)
			o.inbox.update(func(s *Status) { s.Pending, s.Frozen = true, o.pending.formed })
		}
	case recovery.Ours, recovery.Forgotten:
		if redirects && i.Later == recovery.NoLater {
			o.inbox.resume()
		}
	}
}

// askDurable asks whether the durable store has the state of a later owner, of whom neither store nor authority has
// anything left. What this owner commits under its own epoch would be replaced by that state at the next take-over.
func (o *tileOwner) askDurable(ctx context.Context, i *incident) {
	a := o.acquisition
	i.Durable = recovery.DurableNotLater
	if a.writesThrough() {
		return
	}
	at := a.durable.Ask(ctx, &a.beside)().At
	if a.saw(fence.Owner{Position: at}); at.Epoch > o.ownership.grant.Epoch {
		i.Durable = recovery.DurableLater
	}
}

// watchLater looks at a later owner that the authority, restored to an older state, does not know. If it moves its
// owner hash, it lives. If it has not moved it for so long that an idle owner would have, it is dead.
func (o *tileOwner) watchLater(i *incident) {
	before, now := o.later.Last, i.seen
	o.later.Saw(now, o.cfg.lifeless()/2)
	switch {
	case before.Present() && now.Present() && now != before:
		o.cfg.Logger.Warn("the authority does not know the tile's later owner, which serves; was it restored to an "+
			"older state? this owner stands down", "epoch", o.ownership.grant.Epoch, "later", now.Epoch,
			"owner", now.Contact)
		i.Later, i.superseded = recovery.LaterServes, o.ownership.supersededBy(now)
	case o.later.Silent < o.cfg.lifeless():
		i.Later = recovery.LaterWaits
	default:
		i.Later = recovery.LaterDead
	}
}

// logRebase says why a tile is rebased that the store has not refused.
func (o *tileOwner) logRebase(i *incident) {
	switch i.Event {
	case recovery.Damaged:
		o.cfg.Logger.Error("the tile's stream is damaged; its owner goes on above the damage, from memory",
			"at", o.history.Position, "error", i.err)
	case recovery.ShownAbove:
		o.cfg.Logger.Error("watchers were shown an epoch that the authority has forgotten; the tile goes on above it",
			"shown", i.shown, "epoch", o.ownership.grant.Epoch, "at", o.history.Position)
	}
}

// shownAbove acquires the tile anew if watchers were shown an epoch above this owner's, and the authority has forgotten
// that later owner: bridges and relays refuse what is of a lower epoch, for good. If the store has forgotten it too,
// this owner's state goes on above it. If not, the rebase, which names where this owner's history ends, is refused, and
// the later owner's state is taken up.
func (o *tileOwner) shownAbove(ctx context.Context, t *stream.Trimmed) error {
	own := o.ownership.grant.Epoch
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
	i := o.own(recovery.ShownAbove, o.history.Position)
	i.shown = t.Shown
	return o.recover(ctx, i)
}

// writeBase makes a durable store whole that was restored to an older state, and lacks this owner's seal or entries
// that it has acknowledged. This owner's state becomes the journal's base, which the pending batch then follows. What
// fails is tried again with the batch: the journal takes none before.
//
// A durable store that refuses the base has a later state, or another one at the same place: that of another owner, to
// whom a restored authority has granted this epoch too. It may have been acknowledged. taken reports that.
func (o *tileOwner) writeBase(ctx context.Context, i *incident) (taken bool, err error) {
	blob, err := o.history.Blob()
	if err != nil {
		return false, err
	}
	err = o.acquisition.beginDurably(ctx, o.history.Position, blob)
	if errors.Is(err, errStartOver) {
		i.Event = recovery.JournalTaken
		i.seen = refusedByJournal(err, o.tile, o.ownership.grant.Epoch, o.history.Position).Current
		return true, nil
	}
	if err == nil {
		o.cfg.Logger.Error("durable store was restored to an older state; the tile's state is in it again",
			"at", o.history.Position)
	}
	return false, nil
}
