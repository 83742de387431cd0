package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// stalesBeforeMint is how many refusals in a row may call this owner stale while the authority says it
// is not, before it mints a new epoch. The first ones may come from a paused master that is about to
// learn better.
const stalesBeforeMint = 3

// reconcile decides what a serving owner does about a commit that did not succeed. The rules are those
// of the commit protocol (docs/protocol.md). nil means: present the pending batch again.
func (p *TileProcessor) reconcile(ctx context.Context, err error) error {
	var refused *fence.RefusedError
	if !errors.As(err, &refused) {
		if retryable(err) {
			return nil // frozen until the store answers
		}
		return err
	}
	switch verr := p.whose(ctx, refused); {
	case errors.Is(verr, ErrSuperseded):
		return verr
	case errors.Is(verr, errForgotten) && p.outlived(refused):
		return p.rejoin(ctx, refused)
	case errors.Is(verr, errForgotten):
		return p.heal(ctx, refused) // nobody has the tile, but this epoch proves nothing any more
	case verr != nil:
		return nil //nolint:nilerr // the authority cannot be asked: neither serve nor stand down
	}
	switch {
	case errors.Is(err, fence.ErrStale):
		if p.stales++; p.stales < stalesBeforeMint {
			return nil
		}
		return p.rejoin(ctx, refused)
	case errors.Is(err, fence.ErrNoOwner):
		// Expired, deleted or lost. The authority has just said that the tile is ours: install again.
		p.pending.commit.Install, p.pending.commit.Replicas = true, fence.AllReplicas
		return nil
	case errors.Is(err, fence.ErrBehind):
		return p.reappend(ctx, refused)
	case errors.Is(err, fence.ErrReplay), errors.Is(err, fence.ErrForked):
		if p.outlived(refused) {
			return p.rejoin(ctx, refused)
		}
		return p.heal(ctx, refused)
	}
	return err
}

// whose is verify after a refusal; until the authority has answered, the owner that the store named gets the clients.
func (p *TileProcessor) whose(ctx context.Context, refused *fence.RefusedError) error {
	if errors.Is(refused, fence.ErrStale) {
		p.yield(refused.Current)
	}
	err := p.verify(ctx, refused.Current)
	if err == nil || errors.Is(err, errForgotten) {
		p.resume()
	}
	return err
}

// yield redirects clients to an owner that the store has named in a refusal, before the authority is asked. Epochs come
// from the authority alone and an old master knows no later ones, so a higher epoch is one that was granted after
// this owner's. The redirect decides nothing: only intents that were never presented leave, and a client that is sent
// to a process that does not own the tile is sent on from there.
func (p *TileProcessor) yield(to fence.Owner) {
	if to.Epoch <= p.grant.Epoch || to.Contact == "" || to.Contact == p.contact {
		return
	}
	p.mu.Lock()
	p.status.Owner = to
	queue := p.queue
	p.queue = nil
	for _, s := range queue {
		if s.presented {
			p.queue = append(p.queue, s)
		}
	}
	p.mu.Unlock()
	for _, s := range queue {
		if !s.presented {
			s.answer <- answer{err: p.redirect()}
		}
	}
}

// resume ends yield: the authority says that the tile is this owner's, or nobody's, or the store has taken a batch.
func (p *TileProcessor) resume() {
	p.mu.Lock()
	p.status.Owner = fence.Owner{}
	p.mu.Unlock()
}

// reappend puts back what a failover lost: the same batches, sequences and chains, before anything new.
func (p *TileProcessor) reappend(ctx context.Context, refused *fence.RefusedError) error {
	lost, ok := p.kept.after(refused.Current.Position)
	if !ok {
		return p.heal(ctx, refused)
	}
	for i, c := range lost {
		c.Install, c.Replicas = true, 0
		if i == len(lost)-1 {
			c.Replicas = fence.AllReplicas
		}
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.CommitTimeout)
		_, err := p.seams.Store.Commit(attempt, c)
		cancel()
		if err != nil {
			p.cfg.Hooks.Refused(RefusalInfo{Tile: p.tile, Err: err})
			// The pending batch is presented again, and the answer tells where the stream ends by then.
			return nil //nolint:nilerr // reported above
		}
	}
	p.cfg.Logger.Warn("tile put back batches that a failover had lost", "tile", p.tile, "epoch", p.grant.Epoch, "batches", len(lost))
	p.cfg.Hooks.Healed(HealInfo{Tile: p.tile, Reappended: len(lost), At: p.position})
	return nil
}

// heal replaces a history this owner does not know with its own state, under a new epoch. The pending
// batch dies with the history it may be part of; its intents are resolved again.
func (p *TileProcessor) heal(ctx context.Context, refused *fence.RefusedError) error {
	back := p.abandon(refused)
	last, from := refused.Current.Position, p.position
	err := p.rebaseOnOwnState(ctx, max(last.Seq, from.Seq))
	var later *outlivedError
	if errors.As(err, &later) {
		return p.rejoinLater(ctx, back, later.owner)
	}
	if err != nil {
		return err
	}
	p.transition(back)
	p.cfg.Logger.Warn("tile was rebased on its owner's state", "tile", p.tile, "epoch", p.grant.Epoch, "voided", last, "at", p.position)
	p.cfg.Hooks.Healed(HealInfo{Tile: p.tile, Rebased: true, Voided: last, At: p.position})
	if last.IsZero() && !refused.Current.Present() {
		p.restored(RestoredInfo{Tile: p.tile, From: from, At: p.position, SnapshotTick: p.tick, Taken: time.Now(), Exact: true, FromMemory: true})
	}
	return nil
}

// rebaseOnOwnState rebases the tile above a sequence, under an epoch of its own, and as often as it takes: a
// durable store may turn out to have something later than was read from it, and the authority may not answer when it
// is asked who has sealed the journal.
func (p *TileProcessor) rebaseOnOwnState(ctx context.Context, above fence.Seq) error {
	served := p.grant.Epoch
	for tries := 0; ; tries++ {
		if err := p.mintWhileServing(ctx); err != nil {
			return err
		}
		durable, err := p.takeJournalFrom(ctx, served)
		if err == nil {
			err = p.rebase(ctx, max(above, durable.Seq)+fence.RebaseJump, false, p.moveTo)
		}
		if !errors.Is(err, errStartOver) && !retryable(err) {
			return err
		}
		if sleep(ctx, backoff(tries)) != nil {
			return errDrained
		}
	}
}

// takeJournalFrom takes the journal over for an owner that has served, and returns where the durable state ends.
// An *outlivedError if anybody has appended after it, or sealed it under a higher epoch: what that owner has
// acknowledged is not in this one's state.
func (p *TileProcessor) takeJournalFrom(ctx context.Context, served fence.Epoch) (fence.Position, error) {
	if !p.writesThrough() {
		return fence.Position{}, nil
	}
	c, err := p.takeJournal(ctx)
	switch {
	case errors.Is(err, errStartOver), err == nil && c.at.Epoch > served:
		return c.at, &outlivedError{owner: fence.Owner{Tile: p.tile, Epoch: max(p.floor, c.at.Epoch), Position: c.at}}
	}
	return c.at, err
}

// abandon enters Healing for a new epoch above what the store has shown. The pending batch is given up; its
// intents are resolved again. It returns the state to go back to.
func (p *TileProcessor) abandon(refused *fence.RefusedError) (back State) {
	back = p.Status().State
	p.transition(Healing)
	for i := range p.pending.submissions {
		p.pending.submissions[i].presented = true
	}
	p.requeue(p.pending.submissions)
	p.pending, p.stales = nil, 0
	p.saw(refused.Current.Epoch, refused.Current.Position.Epoch)
	return back
}

// mintWhileServing is acquire with no end to its patience but ctx's.
func (p *TileProcessor) mintWhileServing(ctx context.Context) error {
	for {
		err := p.acquire(ctx)
		if err == nil || !retryable(err) {
			return err
		}
		if sleep(ctx, backoff(6)) != nil {
			return errDrained
		}
	}
}

// rebase installs this owner's state at seq or above, where it is durable before the tile serves if it writes
// through, and calls done with the position it took. blank says that the store knows nothing of the tile, as far as
// this owner has seen. While the tile serves it does not end until the store has answered; an *outlivedError then
// means that this state is not the tile's any more. errStartOver: there is a history after all, or something later
// in the durable store.
func (p *TileProcessor) rebase(ctx context.Context, seq fence.Seq, blank bool, done func(fence.Position)) error {
	w, err := p.snapshot()
	if err != nil {
		return err
	}
	r := fence.Rebase{Tile: p.tile, Epoch: p.grant.Epoch, Contact: p.contact, Seq: seq, Tick: p.tick, Blob: w.write.Blob,
		Replicas: fence.AllReplicas, ExpectEmpty: blank}
	deadline := time.Now().Add(p.cfg.BootTimeout)
	for tries := 0; ; tries++ {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.CommitTimeout)
		receipt, err := p.seams.Store.Rebase(attempt, r)
		cancel()
		if err == nil {
			err = p.layBase(ctx, receipt.Position, r.Blob)
		}
		if err == nil {
			p.forgetKept()
			p.settledTick = p.tick
			p.lastSnap, p.lastTick = receipt.Position, p.tick
			done(receipt.Position)
			return nil
		}
		p.cfg.Hooks.Refused(RefusalInfo{Tile: p.tile, Err: err})
		booting := p.rejoining || p.Status().State == Installing
		var refused *fence.RefusedError
		switch {
		case errors.As(err, &refused) && errors.Is(err, fence.ErrStale):
			if err := p.contestedRebase(ctx, refused, booting); err != nil {
				return err
			}
		case errors.As(err, &refused) && errors.Is(err, fence.ErrBehind):
			if booting {
				return errStartOver // there is a history after all: replay it
			}
			r.Seq = refused.Current.Position.Seq + fence.RebaseJump
		case !retryable(err), booting && time.Now().After(deadline):
			return err
		}
		if sleep(ctx, backoff(tries)) != nil {
			return errDrained
		}
	}
}

// contestedRebase is contested for a rebase: nil means that it may be presented again.
func (p *TileProcessor) contestedRebase(ctx context.Context, refused *fence.RefusedError, booting bool) error {
	err := p.contested(ctx, refused)
	switch {
	case booting:
		return err
	case errors.Is(err, errStartOver) && p.outlived(refused) && !refused.Current.Position.IsZero():
		return &outlivedError{owner: refused.Current}
	case retryable(err):
		return nil // the authority cannot be asked
	}
	return err
}
