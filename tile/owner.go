package tile

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/history"
	"github.com/tilefence/tilefence/tile/internal/turn"
	"github.com/tilefence/tilefence/tile/internal/watch"
)

// tileOwner plays a tile's ticks and commits their batches. A batch whose outcome is unknown stays pending and is
// presented again, and no tick is played before it is resolved: the tile freezes rather than fork.
type tileOwner struct {
	*base
	ownership   *ownership
	acquisition *acquisition
	snapshots   *snapshots
	recordCheck *recordCheck

	pending *pendingBatch
	kept    history.Kept
	later   watch.Owner // the owner that refusals name and the authority does not know
	settled fence.Tick  // the last that the store knows of: committed or refreshed
	full    bool        // the stream is, and that was logged
	missing float64     // Status.Missing

	repairing func(context.Context) error // a repair that was begun and is not finished; nil: none

	successor fence.Owner // which the tile was handed to
	heartbeat *heartbeat
	resolver  resolver
	border    *border
	gone      gone
	offered   *transfer.Offer // what the tick decides about beside its intents
	batch     stream.Batch    // what the rules have said last
	outputs   Outputs
	portion   portion
	played    time.Time // when the rules were last asked about a tick that came to pass; zero: no tick was played yet
	dilation  dilation
	work      work

	confirm   bool // the next commit must be confirmed by every replica
	confirmed bool // the last one was
}

// begin makes the processor the serving owner of what was acquired, in the state that it was in.
func (o *tileOwner) begin(got acquired, as State) {
	o.settled, o.later = o.history.Tick, watch.Owner{}
	o.recordCheck.begin()
	o.snapshots.tick = o.history.Tick // the owner before has saved what was due
	o.kept.Clear()
	if got.claim != nil {
		o.keep(*got.claim)
	} else {
		o.snapshots.at = got.at
	}
	o.ownership.skip = nil
	if played := o.history.Played(); played.After(o.played) {
		o.played = played
	}
	o.dilation.announce = true
	o.ownership.served, o.history.Warm = true, false // from now on the stream may have lost what this owner has
	o.moveTo(got.at)
	o.inbox.confirm(got.at)
	o.behind.begin(got.at)
	o.border.begin()
	o.gone.begin(&o.history.Transfers)
	o.inbox.resume()
	o.inbox.enter(as, o.ownership.grant.Epoch)
	if got.voided != nil {
		hook.Call(o.cfg.Hooks.Healed, HealInfo{Tile: o.tile, Rebased: true, Voided: *got.voided, At: got.at})
	}
	if got.restored != nil {
		o.restored(*got.restored)
	}
}

// restored reports that coordination had lost the history.
func (o *tileOwner) restored(i RestoredInfo) {
	log := o.cfg.Logger.Warn
	if i.LostTicks > 0 {
		log = o.cfg.Logger.Error
	}
	i.At = o.history.Position
	log("coordination had lost the tile's history; it goes on from what was left", "from", i.From, "at", i.At,
		"memory", i.FromMemory, "taken", i.Taken, "lost_ticks", i.LostTicks, "lost_for", i.LostFor, "exact", i.Exact)
	hook.Call(o.cfg.Hooks.Restored, i)
}

// admit takes a tick's portion of the queue. It answers the actions whose outcome is known, and the intents of actors
// that have left the tile. It refuses actions that could not be remembered, and keeps back all but the first of a
// repeated action: the repetition waits in the queue for the first one's outcome.
func (o *tileOwner) admit() []submission {
	queue := o.inbox.take(min(o.portion.next(), o.cfg.QueueLimit-o.cfg.QueueLimit/4))
	if len(queue) == 0 {
		return nil
	}
	var repeated []submission
	h, now := o.history, time.Now()
	seen, room, refused := map[string]bool{}, h.Reserve(), false
	subs := queue[:0]
	for _, s := range queue {
		id := s.intent.key()
		crossing := o.gone.with(&s.intent)
		elsewhere := !crossing.IsZero() && !s.open()
		if id == "" && !elsewhere {
			subs = append(subs, s)
			continue
		}
		outcome, known := h.Actions.Outcome(id)
		late := outOfTime(&s.intent, now, o.cfg)
		switch {
		case known:
			s.answer(Result{Outcome: outcome, Crossing: crossing}, nil)
		case elsewhere:
			s.answer(Result{}, &CrossedError{Tile: o.tile, Crossing: crossing})
		case late != nil && s.presented: // in a batch that was given up: it may be in the stream that a rebase replaced
			s.answer(Result{}, &UnresolvedError{Tile: o.tile})
		case late != nil:
			o.refuseLate(&s.intent, now)
			s.answer(Result{}, late)
		case seen[id]:
			s.repeats = true
			repeated = append(repeated, s)
		case !room.Add(id, s.intent.shares(), s.presented):
			refused = true
			s.answer(Result{}, ErrOverloaded)
		default:
			seen[id] = true
			subs = append(subs, s)
		}
	}
	o.inbox.requeue(repeated)
	if refused {
		n, bytes := h.Actions.Size()
		o.reminder.Error("tile remembers as many actions as fit, of all or of one actor; it refuses new ones until "+
			"the oldest expire", "remembered", n, "bytes", bytes, "game_bytes", h.GameBytes)
	}
	return subs
}

// refuseLate logs an action that was admitted too long ago, or by a clock that is ahead.
func (o *tileOwner) refuseLate(in *Intent, now time.Time) {
	o.reminder.Warn("an action is not decided, since its outcome may have been forgotten; is a clock wrong?",
		"action", in.ActionID, "admitted", in.Admitted, "age", now.Sub(in.Admitted), "window", o.cfg.RetryWindow)
}

// outOfTime says why a tile may not decide an action that it does not remember; nil if it may. What it decides it
// remembers for RememberFor, so with the slack between that and RetryWindow no clock that is wrong by less leads to an
// action that is decided twice.
func outOfTime(in *Intent, now time.Time, cfg *Config) error {
	age := now.Sub(in.Admitted)
	if in.Admitted.IsZero() || in.ActionID == "" || age <= cfg.RetryWindow && age >= cfg.RetryWindow-cfg.RememberFor {
		return nil
	}
	return &fence.ArgumentError{Field: "admitted", Value: in.Admitted,
		Want: fmt.Sprintf("at most %v ago, and at most %v ahead of this tile server's clock: "+
			"outside, the tile may have forgotten the action's outcome", cfg.RetryWindow,
			cfg.RememberFor-cfg.RetryWindow)}
}

// stalled reports whether the tile may commit no events now because its stream is full, and logs the changes.
func (o *tileOwner) stalled() bool {
	full := o.history.Bound.Full()
	if full != o.full {
		o.full = full
		o.inbox.update(func(s *Status) { s.StreamFull = full })
		if full {
			o.cfg.Logger.Error("stream is full and no snapshot covers it: the tile stalls",
				"limit", o.cfg.MaxStreamBytes)
		} else {
			o.cfg.Logger.Warn("stream is within bounds again: the tile goes on")
		}
	}
	return full
}

// mayRest reports whether a tick without events and intents needs no commit: the owner hash was refreshed not
// long ago, and nothing waits to be confirmed.
func (o *tileOwner) mayRest() bool {
	confirms := o.confirm || o.confirmsNow() && len(o.kept.Batches) > 0
	return !confirms && o.history.Tick < o.settled+fence.Tick(o.cfg.RefreshEvery)
}

// confirmsNow reports whether this tick is one of those, ConfirmEvery apart, whose commits are confirmed.
func (o *tileOwner) confirmsNow() bool {
	return turn.Is(o.tile, turn.Confirm, o.history.Tick, o.cfg.ConfirmEvery)
}

// form makes the batch of a tick. The error says that it does not fit.
func (o *tileOwner) form(subs []submission, batch stream.Batch, d *Outputs) (*pendingBatch, error) {
	batch.StateSum = o.history.StateSum()
	b, err := newPending(o.next(), subs, batch, d)
	if err != nil {
		return nil, err
	}
	o.history.Presents(b.commit.Next())
	b.commit.Replicas = o.needed(b)
	if o.confirm || o.confirmsNow() && (len(o.kept.Batches) > 0 || b.batch.Len() > 0) {
		b.commit.Replicas = fence.AllReplicas
	}
	return b, nil
}

// next is a commit of nothing at the end of the history.
func (o *tileOwner) next() fence.Commit {
	return fence.Commit{Tile: o.tile, Epoch: o.ownership.grant.Epoch, Contact: o.contact, Prev: o.history.Position,
		Tick: o.history.Tick}
}

// needed is how many replicas must have a batch before it is acknowledged.
func (o *tileOwner) needed(b *pendingBatch) int {
	replicated := o.cfg.Durability == Replicated && b.batch.Len() > 0 ||
		o.cfg.Durability == ReplicatedActions && b.acts()
	if replicated {
		return o.cfg.Replicas
	}
	return 0
}

// settle folds the committed batch into the state and answers the clients that wait for it.
func (o *tileOwner) settle(ctx context.Context, r fence.Receipt, confirmed bool) error {
	b, h := o.pending, o.history
	before := h.Transfers
	o.later = watch.Owner{}
	o.inbox.resume()
	if err := o.fold(ctx, r.Position); err != nil {
		return err
	}
	h.Heat.Decay(b.commit.Tick)
	o.pending = nil
	if b.asked {
		o.played = b.formed
	}
	o.confirmed, o.settled = confirmed, b.commit.Tick
	if confirmed {
		o.inbox.confirm(r.Position)
		o.kept.Clear()
	} else if !b.commit.Refresh() {
		o.keep(b.commit)
	}
	o.moveTo(r.Position)
	o.border.committed(&b.batch, r.Position, confirmed)
	if !b.commit.Refresh() && o.writesBehind() {
		o.behind.add(&b.commit) // after the border, which waits for it
	}
	o.gone.committed(b, r.Position, &before)
	for i, s := range b.submissions {
		r := b.result(i)
		r.Crossing = o.gone.with(&s.intent)
		s.answer(r, nil)
	}
	o.inbox.holds(0)
	hook.Call(o.cfg.Hooks.Committed, b.info(r.Position, o.cfg.Durability))
	return nil
}

// fold folds the pending batch, which is in the stream at a position, into the state.
func (o *tileOwner) fold(ctx context.Context, at fence.Position) error {
	b := o.pending
	if b.commit.Refresh() { // what is not in the stream must not be in the state: others fold only the stream
		return nil
	}
	defer o.work.since(time.Now())
	refresh := o.next()
	refresh.Prev = at
	o.heartbeat.begin(ctx, refresh, "Apply", nil)
	defer o.heartbeat.end()
	o.history.Actions.Senders = b.senders()
	defer func() { o.history.Actions.Senders = nil }()
	return o.history.Fold(at, b.commit.Tick, &b.batch, len(b.commit.Payload)+len(b.commit.Private))
}

// keep keeps a committed batch, and reports what it had to forget for it.
func (o *tileOwner) keep(c fence.Commit) {
	forgotten, first := o.kept.Add(c)
	if len(forgotten) == 0 {
		return
	}
	if first {
		o.cfg.Logger.Warn("tile forgets batches that no replica has confirmed; losing them ends in a rebase",
			"kept", len(o.kept.Batches), "bytes", o.kept.Bytes, "forgotten", forgotten[0])
	}
	o.inbox.update(func(s *Status) { s.Forgotten += int64(len(forgotten)) })
	for _, at := range forgotten {
		if f := o.cfg.Hooks.Forgotten; f != nil {
			f(o.tile, at)
		}
	}
}

// moveTo records where the tile's history now ends.
func (o *tileOwner) moveTo(at fence.Position) {
	h := o.history
	h.Position = at
	border := o.border.status()
	o.inbox.update(func(s *Status) {
		s.Border = border
		s.Position, s.Tick, s.Heat = at, h.Tick, h.Heat.Value
		s.Pending, s.Kept, s.UnderWay = o.pending != nil, len(o.kept.Batches), h.Transfers.UnderWay()
		if !s.Pending {
			s.Frozen = time.Time{}
		}
	})
}
