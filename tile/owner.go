package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// owner plays a tile's ticks and commits their batches. A batch whose outcome is unknown stays pending and is presented
// again, and no tick is played before it is resolved: the tile freezes rather than fork.
type owner struct {
	*core
	title       *title
	history     *history
	acquisition *acquisition
	snapshots   *snapshots

	pending  *pendingBatch
	kept     keptBatches
	stales   int        // refusals as stale in a row that the authority contradicts
	settled  fence.Tick // the last that the store knows of: committed or refreshed
	overflow bool       // no new action can be remembered, and that was logged

	confirm   bool // the next commit must be confirmed by every replica
	confirmed bool // the last one was
}

// begin makes the processor the serving owner of what was acquired, in the state that it was in.
func (o *owner) begin(got acquired, as State) {
	o.settled, o.stales, o.snapshots.tick = o.history.tick, 0, o.history.tick // the owner before has saved what was due
	o.kept.clear()
	if got.claim != nil {
		o.keep(*got.claim)
	} else {
		o.snapshots.at = got.at
	}
	o.title.served = true
	o.moveTo(got.at)
	o.desk.resume()
	o.desk.enter(as, o.title.grant.Epoch)
	if got.voided != nil {
		o.cfg.Hooks.Healed(HealInfo{Tile: o.tile, Rebased: true, Voided: *got.voided, At: got.at})
	}
	if got.restored != nil {
		o.restored(*got.restored)
	}
}

// restored reports that coordination had lost the history.
func (o *owner) restored(i RestoredInfo) {
	log := o.cfg.Logger.Warn
	if i.LostTicks > 0 {
		log = o.cfg.Logger.Error
	}
	i.At = o.history.position
	log("coordination had lost the tile's history; it goes on from what was left", "tile", o.tile, "from", i.From, "at", i.At,
		"memory", i.FromMemory, "taken", i.Taken, "lost_ticks", i.LostTicks, "lost_for", i.LostFor, "exact", i.Exact)
	o.cfg.Hooks.Restored(i)
}

// play resolves one tick and presents its batch.
func (o *owner) play(ctx context.Context, due time.Time, missed int) error {
	began := time.Now()
	h := o.history
	h.tick++
	h.actions.expire(h.tick)
	pending, resolve, err := o.resolve(o.admit())
	if err != nil {
		return err
	}
	info := TickInfo{Tile: o.tile, Tick: h.tick, Late: max(0, began.Sub(due)), Resolve: resolve, Missed: missed}
	if pending == nil {
		h.heat.decay(h.tick)
		o.desk.update(func(s *Status) { s.Tick, s.Heat = h.tick, h.heat.value })
	} else {
		info.Intents, info.Events = len(pending.submissions), len(pending.batch.Events)
		o.pending = pending
		if err := o.present(ctx); err != nil {
			return err
		}
	}
	info.Took, info.Pending = time.Since(began), o.pending != nil
	o.cfg.Hooks.Ticked(info)
	return nil
}

// admit takes the queue. It answers the actions whose outcome is known, refuses those that could not be remembered, and
// keeps back all but the first of a repeated action: the repetition waits in the queue for the first one's outcome.
func (o *owner) admit() []submission {
	queue := o.desk.take()
	if len(queue) == 0 {
		return nil
	}
	var repeated []submission
	memory := &o.history.actions
	seen, bytes, refused := map[string]bool{}, 0, false
	subs := queue[:0]
	for _, s := range queue {
		id := s.intent.ActionID
		if id == "" {
			subs = append(subs, s)
			continue
		}
		outcome, known := memory.outcome(id)
		switch size := rememberedSize(id); {
		case known:
			s.answer <- answer{outcome: outcome}
		case seen[id]:
			s.presented = true
			repeated = append(repeated, s)
		case !s.presented && !memory.allows(len(seen)+1, bytes+size, o.history.gameBytes):
			refused = true
			s.answer <- answer{err: ErrOverloaded}
		default:
			seen[id] = true
			bytes += size
			subs = append(subs, s)
		}
	}
	o.desk.requeue(repeated)
	if refused && !o.overflow {
		o.cfg.Logger.Error("tile remembers as many actions as fit into a snapshot; it refuses new ones until the oldest expire",
			"tile", o.tile, "remembered", len(memory.order), "bytes", memory.bytes, "game_bytes", o.history.gameBytes)
	}
	o.overflow = refused || o.overflow && !memory.allows(1, rememberedSize(""), o.history.gameBytes)
	return subs
}

// resolve asks the rules for the tick's events and forms the batch; nil if none is needed. If they do not fit
// into one batch, half the intents wait for the next tick.
func (o *owner) resolve(subs []submission) (*pendingBatch, time.Duration, error) {
	began := time.Now()
	if o.stalled() {
		o.desk.requeue(subs)
		if o.mayRest() {
			return nil, 0, nil
		}
		b, err := o.form(nil, nil, nil)
		return b, 0, err
	}
	for n := len(subs); ; n /= 2 {
		var intents []Intent
		for i := range n {
			intents = append(intents, subs[i].intent)
		}
		events, outcomes := o.history.rules.Resolve(o.history.tick, intents)
		if len(events) == 0 && n == 0 && o.mayRest() {
			return nil, time.Since(began), nil
		}
		b, err := o.form(subs[:n], events, outcomes)
		if err != nil {
			if n > 1 {
				continue
			}
			o.desk.requeue(subs)
			return nil, 0, fmt.Errorf("tile %s: tick %d: the rules' events do not fit into a batch: %w", o.tile, o.history.tick, err)
		}
		o.desk.requeue(subs[n:])
		return b, time.Since(began), nil
	}
}

// stalled reports whether the tile may commit no events now because its stream is full, and logs the changes.
func (o *owner) stalled() bool {
	b := &o.history.bound
	full := b.full()
	if full != b.stalled {
		b.stalled = full
		o.desk.update(func(s *Status) { s.StreamFull = full })
		if full {
			o.cfg.Logger.Error("stream is full and no snapshot covers it: the tile stalls", "tile", o.tile, "limit", b.limit)
		} else {
			o.cfg.Logger.Warn("stream is within bounds again: the tile goes on", "tile", o.tile)
		}
	}
	return full
}

// mayRest reports whether a tick without events and intents needs no commit: the owner hash was refreshed not
// long ago, and nothing waits to be confirmed.
func (o *owner) mayRest() bool {
	confirms := o.confirm || o.confirmsNow() && len(o.kept.batches) > 0
	return !confirms && o.history.tick < o.settled+fence.Tick(o.cfg.RefreshEvery)
}

// confirmsNow reports whether this tick is one of those, ConfirmEvery apart, whose commits are confirmed.
func (o *owner) confirmsNow() bool {
	return atTurn(o.tile, confirmTurn, o.history.tick, o.cfg.ConfirmEvery)
}

// form makes the batch of a tick. The error says that it does not fit.
func (o *owner) form(subs []submission, events [][]byte, outcomes []stream.Outcome) (*pendingBatch, error) {
	b, err := newPending(o.next(), subs, events, outcomes)
	if err != nil {
		return nil, err
	}
	b.commit.Replicas = o.needed(b)
	if o.confirm || o.confirmsNow() && (len(o.kept.batches) > 0 || b.commit.Events > 0) {
		b.commit.Replicas = fence.AllReplicas
	}
	return b, nil
}

// next is a commit of nothing at the end of the history.
func (o *owner) next() fence.Commit {
	return fence.Commit{Tile: o.tile, Epoch: o.title.grant.Epoch, Contact: o.contact, Prev: o.history.position, Tick: o.history.tick}
}

// needed is how many replicas must have a batch before it is acknowledged.
func (o *owner) needed(b *pendingBatch) int {
	if o.cfg.Durability == Replicated && b.batch.Len() > 0 {
		return o.cfg.Replicas
	}
	return 0
}

// present shows the pending batch to the store once. On return with nil the batch is resolved (o.pending is nil) or has to
// be presented again. An error ends the processor.
func (o *owner) present(ctx context.Context) error {
	b := o.pending
	began := time.Now()
	r, journaling, err := o.commitThrough(ctx, b.commit)
	took := time.Since(began)
	b.attempted(took, journaling, took >= o.cfg.CommitTimeout)
	if err == nil {
		return o.settle(r, b.commit.Replicas == fence.AllReplicas)
	}
	needed := o.needed(b)
	unconfirmed, ok := errors.AsType[*fence.UnconfirmedError](err)
	if ok && !b.commit.Install && needed != fence.AllReplicas && unconfirmed.Receipt.Replicas >= needed {
		// More confirmation was asked for only to shorten what is kept; the living owner can re-append it.
		return o.settle(unconfirmed.Receipt, false)
	}
	if b.timeouts > 0 && !b.commit.Install {
		// The wait for replicas may have taken too long, and would again: the tile would freeze for a confirmation that
		// an owner can do without. A later tick asks for it again.
		b.commit.Replicas = needed
	}
	o.report(err)
	o.desk.update(func(s *Status) { s.Pending = true })
	at, landed := b.landed(err)
	if b.waits = landed; landed {
		o.beat(ctx, at)
	}
	if j, ok := errors.AsType[*journalError](err); ok && j.unsealed {
		return o.reseal(ctx)
	}
	return o.reconcile(ctx, err)
}

// beat keeps the owner hash moving while a batch that is on the master waits for replicas or for the journal: the
// tile is frozen, but followers must not suspect its owner. The ticks that pass meanwhile are counted, and not played.
func (o *owner) beat(ctx context.Context, at fence.Position) {
	b := o.pending
	passed := fence.Tick(time.Since(b.formed) / o.cfg.TickInterval)
	tick := b.commit.Tick + passed - 1 // the next to be played is the one that is due
	if passed == 0 || tick < o.history.tick+fence.Tick(o.cfg.RefreshEvery) {
		return
	}
	c := o.next()
	c.Prev, c.Tick = at, tick
	if _, err := o.commit(ctx, c); err == nil { // any error comes again when the batch is presented
		o.history.tick = tick
	}
}

// settle folds the committed batch into the state and answers the clients that wait for it.
func (o *owner) settle(r fence.Receipt, confirmed bool) error {
	b, h := o.pending, o.history
	o.stales = 0
	o.desk.resume()
	if !b.commit.Refresh() { // what is not in the stream must not be in the state: others fold only the stream
		if err := h.fold(b.commit.Tick, &b.batch); err != nil {
			return err
		}
		h.bound.grow(len(b.commit.Payload))
	}
	o.pending = nil
	o.confirmed, o.settled = confirmed, b.commit.Tick
	if confirmed {
		o.kept.clear()
	} else if !b.commit.Refresh() {
		o.keep(b.commit)
	}
	h.heat.add(b.commit.Tick, b.commit.Events)
	o.moveTo(r.Position)
	for i, s := range b.submissions {
		s.answer <- answer{outcome: b.outcomes[i]}
	}
	o.cfg.Hooks.Committed(b.info(r.Position, o.cfg.Durability))
	return nil
}

// keep keeps a committed batch, and reports what it had to forget for it.
func (o *owner) keep(c fence.Commit) {
	forgotten := o.kept.add(c)
	if len(forgotten) == 0 {
		return
	}
	if !o.kept.forgetful {
		o.kept.forgetful = true
		o.cfg.Logger.Warn("tile forgets batches that no replica has confirmed; a failover that loses them ends in a rebase",
			"tile", o.tile, "kept", len(o.kept.batches), "bytes", o.kept.bytes, "forgotten", forgotten[0])
	}
	o.desk.update(func(s *Status) { s.Forgotten += int64(len(forgotten)) })
	for _, at := range forgotten {
		o.cfg.Hooks.Forgotten(o.tile, at)
	}
}

// moveTo records where the tile's history now ends.
func (o *owner) moveTo(at fence.Position) {
	h := o.history
	h.position = at
	o.desk.update(func(s *Status) {
		s.Position, s.Tick, s.Heat = at, h.tick, h.heat.value
		s.Pending, s.Kept = o.pending != nil, len(o.kept.batches)
	})
}
