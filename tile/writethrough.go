package tile

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// writeThrough commits by way of a journal: what the store has taken is appended there before anybody is told.
// The store comes first, so that the journal never holds what the fence has refused; and it is asked at every
// attempt, which keeps the owner hash alive while the journal hangs. Its commit is a fence.CommitFn.
type writeThrough struct {
	store   fence.CommitFn
	journal Journal
	timeout time.Duration
	took    time.Duration // the journal's part of the last commit
}

func (w *writeThrough) commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	w.took = 0
	r, err := w.store(ctx, c)
	unconfirmed, ok := errors.AsType[*fence.UnconfirmedError](err)
	switch {
	case ok && !c.Install:
		r = unconfirmed.Receipt // on the master, which is all that an ordinary batch needs
	case err != nil:
		return r, err
	}
	if c.Refresh() {
		return r, err
	}
	if failed := w.append(ctx, &c, r); failed != nil {
		return fence.Receipt{}, failed
	}
	return r, err
}

// append journals a batch that the store has taken. It has a time of its own: what the store took is not the
// journal's.
func (w *writeThrough) append(ctx context.Context, c *fence.Commit, r fence.Receipt) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.timeout)
	defer cancel()
	err := w.journal.Append(ctx, c.Tile, fence.Entry{Position: c.Next(), Prev: c.Prev, Tick: c.Tick, Events: c.Events,
		Committed: began.UnixMilli(), Payload: c.Payload})
	w.took = time.Since(began)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fence.ErrStale), errors.Is(err, fence.ErrForked):
		return refusedByJournal(err, c.Tile, c.Epoch, r.Position)
	}
	return &journalError{StoreError: &fence.StoreError{Op: "journal", Tile: c.Tile, Outcome: fence.ErrUnknownOutcome, Err: err}, receipt: r,
		unsealed: errors.Is(err, fence.ErrNoOwner)}
}

// journalError is a batch that the store has and the journal may not have: it is to be presented again.
type journalError struct {
	*fence.StoreError
	receipt  fence.Receipt
	unsealed bool // the journal has lost this owner's seal
}

// Unwrap gives the error as callers know it.
func (e *journalError) Unwrap() error { return e.StoreError }

// refusedByJournal is a refusal by the journal as if the store had refused: somebody has sealed it under a higher
// epoch, or has the same epoch from an authority that was restored. In both cases whatever it holds was appended
// by somebody who may have acknowledged it, so this owner's own state is not all there is to the tile: the
// refusal names a later epoch, and at is where the stream ends.
func refusedByJournal(err error, tile fence.TileID, epoch fence.Epoch, at fence.Position) *fence.RefusedError {
	above := epoch + 1
	if r, ok := errors.AsType[*fence.RefusedError](err); ok {
		above = max(above, r.Current.Epoch)
	}
	return &fence.RefusedError{Reason: fence.ErrStale, Tile: tile, Epoch: epoch, Current: fence.Owner{Tile: tile, Epoch: above, Position: at}}
}

// takeJournal seals the journal under this processor's epoch, and then reads how far the durable state goes: in
// this order, or what an earlier owner appends in between is acknowledged and missed. A processor that has served
// asks until it is answered, any other for BootTimeout. errStartOver, or a *SupersededError, if a later owner has
// sealed it.
func (p *TileProcessor) takeJournal(ctx context.Context) (c checkpointed, err error) {
	ask := p.patiently
	if p.owns() {
		ask = p.insist
	}
	err = ask(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.BootTimeout)
		defer cancel()
		if err = p.cfg.Journal.Seal(ctx, p.tile, p.grant.Epoch); err == nil {
			c, err = p.readDurable(ctx, false)
		}
		return err
	})
	switch {
	case errors.Is(err, fence.ErrStale):
		return c, p.contested(ctx, refusedByJournal(err, p.tile, p.grant.Epoch, p.position))
	case err == nil && c.at.Epoch >= p.grant.Epoch:
		p.saw(c.at.Epoch) // the authority had forgotten epochs
		return c, errStartOver
	}
	return c, err
}

// follow gives the part of a journal's tail that continues a position. An entry of a lower epoch than the one
// before it, which it does not follow, is left from a history that a later owner has replaced: the end. Any other
// that does not follow is a *stream.GapError.
func follow(tile fence.TileID, at fence.Position, tail []fence.Entry) ([]fence.Entry, error) {
	for i := range tail {
		e := &tail[i]
		if err := e.Verify(tile); err != nil {
			return nil, err
		}
		if e.Prev != at {
			if e.Epoch < at.Epoch {
				return tail[:i], nil
			}
			return nil, &stream.GapError{Tile: tile, Have: at, Next: *e}
		}
		at = e.Position
	}
	return tail, nil
}

// layBase makes the durable state end at a position of this processor's own epoch before it serves from there,
// with a snapshot of the state. From then on an earlier owner can neither append nor put a snapshot, and what is
// acknowledged is this snapshot and what is appended after it. Tiles that do not write through need none.
//
// errStartOver: the durable store has something that the snapshot does not supersede, which came since it was
// read.
func (p *TileProcessor) layBase(ctx context.Context, at fence.Position, blob []byte) error {
	if !p.writesThrough() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DrainTimeout)
	defer cancel()
	err := p.cfg.Journal.Put(ctx, p.tile, fence.Snapshot{Position: at, Tick: p.tick, Contact: p.contact, Sum: fence.Checksum(blob),
		Taken: time.Now().UnixMilli(), Blob: blob})
	switch {
	case err == nil, retryable(err), errors.Is(err, fence.ErrInvalidArgument), errors.Is(err, fence.ErrCorrupt):
		return err
	case ctx.Err() != nil:
		return &fence.StoreError{Op: "journal base", Tile: p.tile, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	p.cfg.Logger.Warn("durable store refuses the state that the tile was to begin from; it is read again", "tile", p.tile, "at", at, "err", err)
	return errStartOver
}

// reseal takes back a journal that has lost this owner's seal: the durable store was put back to an older state,
// and lacks what this owner has acknowledged. If the authority says that the tile is this owner's still, the state
// is put there first, so that what is durable is whole again when the pending batch is appended to it. What fails is
// tried again with the batch: the journal takes none before it is sealed.
func (p *TileProcessor) reseal(ctx context.Context) error {
	switch err := p.verify(ctx, fence.Owner{}); {
	case errors.Is(err, ErrSuperseded):
		return err
	case errors.Is(err, errForgotten): // the authority was put back as well: a new epoch, and a rebase, put all right
		return p.heal(ctx, &fence.RefusedError{Reason: fence.ErrNoOwner, Tile: p.tile, Epoch: p.grant.Epoch,
			Current: fence.Owner{Tile: p.tile, Epoch: p.grant.Epoch, Contact: p.contact, Position: p.pending.commit.Next()}})
	case err != nil:
		return nil //nolint:nilerr // the authority cannot be asked: neither serve nor stand down
	}
	w, err := p.snapshot()
	if err != nil {
		return err
	}
	if err = p.layBase(ctx, p.position, w.write.Blob); err != nil {
		return nil //nolint:nilerr // logged, or tried again
	}
	bounded, cancel := context.WithTimeout(ctx, p.cfg.JournalTimeout)
	defer cancel()
	if err = p.cfg.Journal.Seal(bounded, p.tile, p.grant.Epoch); err == nil {
		p.cfg.Logger.Error("durable store was put back to an older state; the tile's state is in it again", "tile", p.tile, "at", p.position)
	}
	return nil //nolint:nilerr // the next append tells
}

// insist repeats f while it fails for want of an answer, with no end but ctx's: errDrained.
func (p *TileProcessor) insist(ctx context.Context, f func() error) error {
	for attempt := 0; ; attempt++ {
		err := f()
		if err == nil || !retryable(err) {
			return err
		}
		p.cfg.Hooks.Refused(RefusalInfo{Tile: p.tile, Err: err})
		if sleep(ctx, backoff(attempt)) != nil {
			return errDrained
		}
	}
}

// journalAnswers reports, as nil, that a follower reaches the journal: it would freeze the tile that it takes from an
// owner otherwise. It only reads. A write, even of a seal that is there already, would bring back one that the durable
// store has lost, by whose absence the owner learns that the store was restored to an older state.
func (p *TileProcessor) journalAnswers(ctx context.Context) error {
	if !p.writesThrough() || p.watch.owner.Epoch == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.BootTimeout)
	defer cancel()
	_, err := p.cfg.Journal.Tail(ctx, p.tile, p.position.Seq)
	return err
}
