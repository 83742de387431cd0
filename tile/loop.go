package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// pendingBatch is a tick's batch from the moment it is formed until its fate is known. Its commit does
// not change meanwhile, except that a batch met by a missing owner hash is presented as an install.
type pendingBatch struct {
	commit      fence.Commit
	batch       stream.Batch
	submissions []submission
	outcomes    []stream.Outcome // per submission
	formed      time.Time
	attempts    int
	timeouts    int // of the last attempts, how many in a row had no answer within CommitTimeout

	committing  time.Duration // in the store's calls, until the batch was known to be on the master
	journaling  time.Duration // in the journal's
	unconfirmed time.Time     // when it was first known to be on the master and not on enough replicas
	waits       bool          // it is on the master, and waits for replicas or the journal
}

// serve ticks until ctx ends or the tile is lost. A batch whose fate is unknown is presented again
// after a short wait, and no tick is played before it is settled: the tile freezes rather than fork.
func (p *TileProcessor) serve(ctx context.Context) error {
	due := time.Now().Add(phase(p.tile, p.cfg.TickInterval))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.drain(ctx)
		case i := <-p.inspect:
			p.inspected(i)
			continue
		case d := <-p.drains:
			if d.successor == "" {
				d.answer <- nil
				return p.drain(ctx)
			}
			if err := p.handOver(ctx, d); err != nil {
				return err
			}
			timer.Reset(time.Until(due))
			continue
		case r := <-p.snapshots:
			p.snapshotSaved(r)
			continue
		case <-timer.C:
		}
		missed := 0
		if now := time.Now(); p.pending == nil {
			if late := now.Sub(due); late >= p.cfg.TickInterval {
				missed = int(late / p.cfg.TickInterval)
				due = due.Add(time.Duration(missed) * p.cfg.TickInterval)
				p.countMissed(missed)
			}
			if err := p.play(ctx, due, missed); err != nil {
				return err
			}
			due = due.Add(p.cfg.TickInterval)
		} else if err := p.present(ctx); err != nil {
			return err
		}
		if p.pending != nil {
			timer.Reset(p.retryAfter())
			continue
		}
		p.snapshotIfDue(ctx)
		timer.Reset(time.Until(due))
	}
}

// play resolves one tick and presents its batch.
func (p *TileProcessor) play(ctx context.Context, due time.Time, missed int) error {
	began := time.Now()
	p.tick++
	if p.actions.expire(p.tick); p.full && p.actions.allows(1, rememberedSize(""), p.gameBytes) {
		p.full = false
	}
	pending, resolve, err := p.resolve(p.admit())
	if err != nil {
		return err
	}
	info := TickInfo{Tile: p.tile, Tick: p.tick, Late: max(0, began.Sub(due)), Resolve: resolve, Missed: missed}
	if pending == nil {
		p.rest()
	} else {
		info.Intents, info.Events = len(pending.submissions), len(pending.batch.Events)
		p.pending = pending
		if err := p.present(ctx); err != nil {
			return err
		}
	}
	info.Took, info.Pending = time.Since(began), p.pending != nil
	p.cfg.Hooks.Ticked(info)
	return nil
}

// rest ends a tick that needs no commit.
func (p *TileProcessor) rest() {
	p.heat.decay(p.tick)
	p.mu.Lock()
	p.status.Tick, p.status.Heat = p.tick, p.heat.value
	p.mu.Unlock()
}

// mayRest reports whether a tick without events and intents needs no commit: the owner hash was refreshed not
// long ago, and nothing waits to be confirmed.
func (p *TileProcessor) mayRest() bool {
	return !p.confirm && p.tick < p.settledTick+fence.Tick(p.cfg.RefreshEvery) && !p.confirmationDue()
}

// confirmationDue reports whether this tick's commit asks every replica for what they may not have.
func (p *TileProcessor) confirmationDue() bool {
	return p.confirm || p.confirmsNow() && len(p.kept.batches) > 0
}

// confirmsNow reports whether this tick is one of those, ConfirmEvery apart, whose commits are confirmed.
func (p *TileProcessor) confirmsNow() bool {
	return atTurn(p.tile, confirmTurn, p.tick, p.cfg.ConfirmEvery)
}

// admit takes the queue, answers the actions whose outcome is already known, and drops all but the
// first of a repeated action: the repetition waits in the queue for the first one's outcome.
func (p *TileProcessor) admit() []submission {
	p.mu.Lock()
	queue := p.queue
	p.queue = nil
	p.mu.Unlock()
	if len(queue) == 0 {
		return nil
	}
	var repeated []submission
	seen, actions, bytes := map[string]bool{}, 0, 0
	subs := queue[:0]
	for _, s := range queue {
		id := s.intent.ActionID
		if id == "" {
			subs = append(subs, s)
			continue
		}
		if o, ok := p.actions.outcome(id); ok {
			s.answer <- answer{outcome: o}
			continue
		}
		if seen[id] {
			s.presented = true
			repeated = append(repeated, s)
			continue
		}
		if !s.presented && !p.actions.allows(actions+1, bytes+rememberedSize(id), p.gameBytes) {
			p.cannotRemember()
			s.answer <- answer{err: ErrOverloaded}
			continue
		}
		seen[id] = true
		actions, bytes = actions+1, bytes+rememberedSize(id)
		subs = append(subs, s)
	}
	p.requeue(repeated)
	return subs
}

// cannotRemember says, once until it is over, that new actions are refused.
func (p *TileProcessor) cannotRemember() {
	if p.full {
		return
	}
	p.full = true
	p.cfg.Logger.Error("tile remembers as many actions as fit into a snapshot; new ones are refused until the oldest are forgotten",
		"tile", p.tile, "remembered", len(p.actions.order), "bytes", p.actions.bytes, "game_bytes", p.gameBytes)
}

// requeue puts submissions back at the front of the queue.
func (p *TileProcessor) requeue(subs []submission) {
	if len(subs) == 0 {
		return
	}
	p.mu.Lock()
	p.queue = append(append([]submission(nil), subs...), p.queue...)
	p.mu.Unlock()
}

// resolve asks the rules for the tick's events and forms the batch; nil if none is needed. If they do not fit
// into one batch, half the intents wait for the next tick.
func (p *TileProcessor) resolve(subs []submission) (*pendingBatch, time.Duration, error) {
	began := time.Now()
	if p.standStill() {
		p.requeue(subs)
		if p.mayRest() {
			return nil, 0, nil
		}
		b, err := p.form(nil, nil, nil)
		return b, 0, err
	}
	for n := len(subs); ; n /= 2 {
		var intents []Intent
		for i := range n {
			intents = append(intents, subs[i].intent)
		}
		events, outcomes := p.rules.Resolve(p.tick, intents)
		if len(events) == 0 && n == 0 && p.mayRest() {
			return nil, time.Since(began), nil
		}
		b, err := p.form(subs[:n], events, outcomes)
		if err != nil {
			if n > 1 {
				continue
			}
			p.requeue(subs)
			return nil, 0, fmt.Errorf("tile %s: tick %d: the rules' events do not fit into a batch: %w", p.tile, p.tick, err)
		}
		p.requeue(subs[n:])
		return b, time.Since(began), nil
	}
}

// form makes the batch of a tick. The error says that it does not fit.
func (p *TileProcessor) form(subs []submission, events [][]byte, outcomes []stream.Outcome) (*pendingBatch, error) {
	b := &pendingBatch{submissions: subs, formed: time.Now()}
	b.batch.Events = events
	if len(subs) > 0 {
		b.outcomes = make([]stream.Outcome, len(subs))
	}
	for i := range subs {
		b.outcomes[i] = stream.Rejected
		if i < len(outcomes) && outcomes[i].Valid() {
			b.outcomes[i] = outcomes[i]
		}
		if id := subs[i].intent.ActionID; id != "" {
			b.batch.Resolutions = append(b.batch.Resolutions, stream.Resolution{ActionID: id, Outcome: b.outcomes[i]})
		}
	}
	var payload []byte
	if b.batch.Len() > 0 {
		var err error
		if payload, err = stream.AppendBatch(nil, &b.batch); err != nil {
			return nil, err
		}
	}
	b.commit = fence.Commit{Tile: p.tile, Epoch: p.grant.Epoch, Contact: p.contact, Prev: p.position, Tick: p.tick,
		Events: b.batch.Len(), Payload: payload}
	b.commit.Replicas = p.needed(b)
	if p.confirmationDue() || p.confirmsNow() && b.batch.Len() > 0 {
		b.commit.Replicas = fence.AllReplicas
	}
	return b, nil
}

// settle folds the committed batch into the state and answers whoever waits for it.
func (p *TileProcessor) settle(r fence.Receipt, confirmed bool) error {
	b := p.pending
	p.pending, p.stales = nil, 0
	p.resume()
	if !b.commit.Refresh() { // what is not in the stream must not be in the state: others fold only the stream
		if err := p.fold(b.commit.Tick, &b.batch); err != nil {
			for _, s := range b.submissions {
				s.answer <- answer{err: p.unresolved()}
			}
			return err
		}
	}
	if !b.commit.Refresh() {
		p.memory.grow(len(b.commit.Payload))
	}
	p.confirmed, p.settledTick = confirmed, b.commit.Tick
	if confirmed {
		p.forgetKept()
	} else if !b.commit.Refresh() {
		p.keep(b.commit)
	}
	p.heat.add(b.commit.Tick, b.commit.Events)
	p.moveTo(r.Position)
	for i, s := range b.submissions {
		s.answer <- answer{outcome: b.outcomes[i]}
	}
	info := CommitInfo{Tile: p.tile, Position: r.Position, Tick: b.commit.Tick, Events: len(b.batch.Events),
		Bytes: len(b.commit.Payload), Took: time.Since(b.formed), Refresh: b.commit.Refresh(),
		Durability: p.cfg.Durability, Committing: b.committing, Journaling: b.journaling}
	if !b.unconfirmed.IsZero() {
		info.Confirming = time.Since(b.unconfirmed)
	}
	p.cfg.Hooks.Committed(info)
	return nil
}

// unresolve tells whoever waits for the pending batch that its fate will not be known here.
func (p *TileProcessor) unresolve() {
	if p.pending == nil {
		return
	}
	for _, s := range p.pending.submissions {
		s.answer <- answer{err: p.unresolved()}
	}
	p.pending = nil
}

// drain plays a last tick for the intents already queued and waits until every replica has it, then saves a
// snapshot and releases the tile; each of the two within DrainTimeout. A batch still unsettled by then stays
// unresolved, and the tile with its record, for the next owner to take over.
func (p *TileProcessor) drain(ctx context.Context) error {
	p.transition(Draining)
	err := p.settleConfirmed(ctx)
	if err != nil && !errors.Is(err, errUnsettled) {
		return err
	}
	if err != nil && (p.pending != nil || p.Status().State != Draining) {
		p.cfg.Logger.Warn("tile stopped before its last batch was settled", "tile", p.tile, "waited", p.cfg.DrainTimeout)
		return errDrained
	}
	if err != nil {
		p.cfg.Logger.Warn("tile stopped before every replica had confirmed its last batches", "tile", p.tile,
			"batches", len(p.kept.batches), "waited", p.cfg.DrainTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
	defer cancel()
	if p.saving {
		p.snapshotSaved(<-p.snapshots)
	}
	if p.position != p.lastSnap {
		if w, err := p.snapshot(); err == nil {
			p.saveSnapshot(ctx, w)
			p.snapshotSaved(<-p.snapshots)
		}
	}
	p.release(ctx)
	return errDrained
}

// moveTo records where the tile's history now ends.
func (p *TileProcessor) moveTo(at fence.Position) {
	p.position = at
	p.mu.Lock()
	p.status.Position, p.status.Tick, p.status.Heat = at, p.tick, p.heat.value
	p.status.Pending, p.status.Kept = p.pending != nil, len(p.kept.batches)
	p.mu.Unlock()
}

func (p *TileProcessor) countMissed(n int) {
	p.mu.Lock()
	p.status.Missed += int64(n)
	p.mu.Unlock()
}

// present shows the pending batch to the store once. On return with nil the batch is settled
// (p.pending is nil) or has to be presented again. An error ends the processor.
func (p *TileProcessor) present(ctx context.Context) error {
	b := p.pending
	b.attempts++
	// A commit under way is not abandoned when the processor is told to stop: its fate would be unknown.
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.CommitTimeout)
	began := time.Now()
	r, err := p.commit(attempt, b.commit)
	b.took(time.Since(began), p.through)
	if attempt.Err() != nil {
		b.timeouts++
	} else {
		b.timeouts = 0
	}
	cancel()
	if err == nil {
		return p.settle(r, b.commit.Replicas == fence.AllReplicas)
	}
	var unconfirmed *fence.UnconfirmedError
	if errors.As(err, &unconfirmed) && !b.commit.Install && p.enough(b, unconfirmed.Receipt.Replicas) {
		// The wish for more confirmation was only to shorten what is kept; the living owner can re-append it.
		return p.settle(unconfirmed.Receipt, false)
	}
	if b.timeouts > 0 && !b.commit.Install {
		// Perhaps it was the wait for replicas that took too long, and would again: the tile would stand still for
		// a wish that an owner can do without. A later tick asks for confirmation again.
		b.commit.Replicas = p.needed(b)
	}
	p.cfg.Hooks.Refused(RefusalInfo{Tile: p.tile, Err: err})
	p.mu.Lock()
	p.status.Pending = true
	p.mu.Unlock()
	at, landed := b.landed(err)
	if b.waits = landed; landed {
		p.beat(ctx, at)
	}
	if j, ok := errors.AsType[*journalError](err); ok && j.unsealed {
		return p.reseal(ctx)
	}
	return p.reconcile(ctx, err)
}

// took notes how long an attempt to commit took.
func (b *pendingBatch) took(d time.Duration, w *writeThrough) {
	if w != nil {
		b.journaling += w.took
		d -= w.took
	}
	if b.unconfirmed.IsZero() {
		b.committing += d
	}
}

// landed is where the stream ends when an attempt has brought the batch to the master, but not to where it must be
// before it counts.
func (b *pendingBatch) landed(err error) (fence.Position, bool) {
	if u, ok := errors.AsType[*fence.UnconfirmedError](err); ok {
		if b.unconfirmed.IsZero() {
			b.unconfirmed = time.Now()
		}
		return u.Receipt.Position, true
	}
	if j, ok := errors.AsType[*journalError](err); ok {
		return j.receipt.Position, true
	}
	return fence.Position{}, false
}

// beat keeps the owner hash moving while a batch that is on the master waits for replicas or for the journal: the
// tile is frozen, but its owner is not dead, and followers would take it for that. The ticks that pass meanwhile
// are counted, and not played.
func (p *TileProcessor) beat(ctx context.Context, at fence.Position) {
	b := p.pending
	passed := fence.Tick(time.Since(b.formed) / p.cfg.TickInterval)
	tick := b.commit.Tick + passed - 1 // the next to be played is the one that is due
	if passed == 0 || tick < p.tick+fence.Tick(p.cfg.RefreshEvery) {
		return
	}
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.CommitTimeout)
	defer cancel()
	_, err := p.seams.Store.Commit(attempt, fence.Commit{Tile: p.tile, Epoch: p.grant.Epoch, Contact: p.contact, Prev: at, Tick: tick})
	if err == nil { // what is wrong otherwise, the batch will hear when it is presented again
		p.tick = tick
	}
}
