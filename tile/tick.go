package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/recovery"
)

// play resolves one tick and presents its batch.
func (o *tileOwner) play(ctx context.Context, due time.Time, missed int) error {
	began := time.Now()
	h := o.history
	if beats := o.heartbeat.count(); beats > 0 {
		o.reminder.Warn("the game's rules take longer than a tick; ticks are missed", "tick", h.Tick, "missed", missed,
			"interval", o.cfg.TickInterval)
		// The owner hash has moved on by as many ticks, of which one may be this: time goes no faster than clocks.
		h.Tick += min(beats, fence.Tick(missed))
	}
	h.Advance()
	subs := o.admit()
	if o.border.inputs.Elapsed = 0; !o.played.IsZero() {
		o.border.inputs.Elapsed = max(0, began.Sub(o.played))
	}
	o.heartbeat.begin(ctx, o.next(), "Resolve", subs)
	resolving := time.Now()
	pending, resolve := o.resolve(subs)
	o.work.since(resolving)
	o.heartbeat.end()
	info := TickInfo{Tile: o.tile, Tick: h.Tick, Late: max(0, began.Sub(due)), Resolve: resolve, Missed: missed}
	if pending == nil {
		h.Heat.Decay(h.Tick)
		o.inbox.update(func(s *Status) { s.Tick, s.Heat = h.Tick, h.Heat.Value })
	} else {
		info.Intents, info.Events = len(pending.submissions), len(pending.batch.Events)
		o.dilation.announce = o.dilation.announce && info.Events == 0
		pending.resolve, o.pending = resolve, pending
		if err := o.present(ctx); err != nil {
			return err
		}
	}
	spent := o.work.tick()
	o.inbox.update(func(s *Status) { s.Work = spent })
	info.Took, info.Pending = time.Since(began), o.pending != nil
	if !info.Pending {
		o.dilation.adapt(info.Took)
	}
	hook.Call(o.cfg.Hooks.Ticked, info)
	return nil
}

// present shows the pending batch to the store once. On return with nil the batch is resolved (o.pending is nil) or has
// to be presented again. An error ends the processor.
func (o *tileOwner) present(ctx context.Context) error {
	b := o.pending
	began := time.Now()
	r, journaling, err := o.commitThrough(ctx, b.commit)
	took := time.Since(began)
	b.attempted(took, journaling, took >= o.cfg.CommitTimeout)
	if err == nil {
		return o.accept(ctx, r, b.commit.Replicas == fence.AllReplicas)
	}
	needed := o.needed(b)
	unconfirmed, ok := errors.AsType[*fence.UnconfirmedError](err)
	if ok && !b.commit.Install && needed != fence.AllReplicas && unconfirmed.Receipt.Replicas >= needed {
		// More confirmation was asked for only to shorten what is kept; the living owner can re-append it.
		return o.accept(ctx, unconfirmed.Receipt, false)
	}
	if b.timeouts > 0 && !b.commit.Install {
		// The wait for replicas may have taken too long, and would again: the tile would freeze for a confirmation that
		// an owner can do without. A later tick asks for it again.
		b.commit.Replicas = needed
	}
	o.report(err)
	o.inbox.update(func(s *Status) { s.Pending, s.Frozen = true, b.formed })
	at, landed := b.landed(err)
	if b.waits = landed; landed {
		o.beat(ctx, at)
	}
	if j, ok := errors.AsType[*journalError](err); ok && j.restored {
		return o.recover(ctx, o.own(recovery.JournalRestored, b.commit.Next()))
	}
	return o.reconcile(ctx, err)
}

// accept settles the pending batch, which is in the store. If there was no owner hash, the authority and the durable
// store are asked once more before anything of it is acknowledged: every copy may have lost what another owner has
// left, also while this process slept between the authority's answer and its install, and the store refuses nothing
// then.
func (o *tileOwner) accept(ctx context.Context, r fence.Receipt, confirmed bool) error {
	if o.pending.anew {
		i := o.own(recovery.InstalledAnew, o.pending.commit.Next())
		i.settle = func() error { return o.settle(ctx, r, confirmed) }
		return o.recover(ctx, i)
	}
	return o.settle(ctx, r, confirmed)
}

// beat keeps the owner hash moving while a batch that is on the master waits for replicas or for the journal: the
// tile is frozen, but followers must not suspect its owner. The ticks that pass meanwhile are counted, and not played.
func (o *tileOwner) beat(ctx context.Context, at fence.Position) {
	b := o.pending
	passed := fence.Tick(time.Since(b.formed) / o.cfg.TickInterval)
	tick := b.commit.Tick + passed - 1 // the next to be played is the one that is due
	if passed == 0 || tick < o.history.Tick+fence.Tick(o.cfg.RefreshEvery) {
		return
	}
	c := o.next()
	c.Prev, c.Tick = at, tick
	if _, err := o.commit(ctx, c); err == nil { // any error comes again when the batch is presented
		o.history.Tick = tick
	}
}
