package tile

import (
	"context"
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/tile/internal/turn"
)

// recordCheck detects that the authority's record no longer names this owner, although no successor has committed. A
// claimant leaves such a record that dies between its mint and its install, or with the only copy of its install; and
// so does an authority that was restored to an older state. The store refuses nothing then, so the owner has to look.
// It looks beside the loop: an authority that hangs delays no tick.
type recordCheck struct {
	*base
	ownership *ownership
	answers   chan looked
	looking   bool
	tick      fence.Tick  // of the last look
	seen      fence.Grant // by the last look; zero: this owner's grant, or nothing
	twice     bool        // by the look before it, too
}

// looked is what the authority has answered.
type looked struct {
	grant fence.Grant
	err   error
}

// begin forgets what was seen under another grant.
func (l *recordCheck) begin() { l.seen, l.twice, l.tick = fence.Grant{}, false, l.history.Tick }

// lookIfDue asks the authority in the tile's turn. The answer comes by way of answers.
func (l *recordCheck) lookIfDue(ctx context.Context) {
	every, now := int(l.cfg.lookEvery()/l.cfg.TickInterval), l.history.Tick
	if l.looking || turn.Count(l.tile, turn.Look, now, every) == turn.Count(l.tile, turn.Look, l.tick, every) {
		return
	}
	l.looking, l.tick = true, now
	l.beside.Go(func() {
		g, err := l.ownership.record(ctx)
		l.answers <- looked{g, err}
	})
}

// judge takes an answer. A claimant that lives needs much less time than there is between two looks, so a record that
// both have shown is one that its holder does not take up. A quarantine is left to the operator.
func (l *recordCheck) judge(a looked) {
	l.looking = false
	a.grant.Tile = l.tile
	_, quarantined := fence.ParseQuarantine(a.grant.Contact)
	unknown := a.err != nil && !errors.Is(a.err, fence.ErrNeverOwned)
	if unknown || quarantined || l.ownership.holds(a.grant) {
		l.seen, l.twice = fence.Grant{}, false
		return
	}
	before := l.seen
	l.seen = a.grant
	l.twice = before.Tile == l.tile && before.Epoch == a.grant.Epoch && before.ID == a.grant.ID &&
		before.Contact == a.grant.Contact
}

// outlast is called after each tick that is settled. If two looks have shown the same record, the next tick is to be
// confirmed by every replica. If it is, no copy has anything of the holder of that record, and this owner acquires the
// tile anew above it: an install of the other that arrives late is refused as stale. If it is not, an install would not
// be confirmed either; the owner goes on as it is until the next look.
func (o *tileOwner) outlast(ctx context.Context) error {
	l := o.recordCheck
	switch {
	case !l.twice:
		o.confirm = false // a repair may have begun meanwhile
		l.lookIfDue(ctx)
		return nil
	case !o.confirm:
		o.confirm, o.confirmed = true, false
		return nil
	}
	o.confirm, l.twice = false, false
	if !o.confirmed {
		return nil
	}
	back, before := o.inbox.read().State, o.ownership.grant.Epoch
	o.inbox.enter(Healing, before)
	o.ownership.abandoned = l.seen
	got, err := o.acquisition.again(ctx)
	if errors.Is(err, errStartOver) {
		o.inbox.enter(back, o.ownership.grant.Epoch)
		return o.elsewhere(ctx, err)
	}
	if err != nil {
		return err
	}
	o.begin(got, back)
	o.cfg.Logger.Warn("the authority did not name this owner, and no process took the tile; it was acquired anew",
		"before", before, "named", o.ownership.abandoned.Epoch, "contact", o.ownership.abandoned.Contact,
		"epoch", o.ownership.grant.Epoch, "at", o.history.Position)
	hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Reclaimed: true, At: o.history.Position})
	return nil
}

// elsewhere repairs a tile whose stream is not at this owner's history after all. If it ends before, a failover has
// lost what was confirmed, and this owner has it. Otherwise another owner has committed.
func (o *tileOwner) elsewhere(ctx context.Context, err error) error {
	i := &incident{seen: fence.Owner{Tile: o.tile, Position: o.history.Position}}
	i.Event = recovery.ReinstallRefused
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		i.seen = refused.Current
		if errors.Is(refused, fence.ErrBehind) {
			i.Event = recovery.ReinstallBehind
		}
	}
	return o.recover(ctx, i)
}
