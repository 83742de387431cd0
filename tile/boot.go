package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// errStartOver sends a booting processor back to claim a new epoch: somebody committed since it
// replayed, and a paused master may hold the batch it now abandons under the old one.
var errStartOver = errors.New("start over under a new epoch")

// orphanedBeforeBelieved is how many boots in a row must find an owner hash without stream and snapshot
// before it is believed that they are gone. Once, it may be that another claimant has just begun the tile, or
// that one of the reads met a node that is behind.
const orphanedBeforeBelieved = 5

// authorityTimeout bounds one question to the authority: one that accepts connections and never answers
// must not hold up the loop.
const authorityTimeout = 2 * time.Second

// boot claims the tile, replays its history and installs the new epoch. On return with nil the
// processor is Serving.
func (p *TileProcessor) boot(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		p.transition(Claiming)
		err := p.bootOnce(ctx)
		if !errors.Is(err, errStartOver) {
			if ctx.Err() != nil {
				p.release(ctx)
				return errDrained
			}
			return err
		}
		if err := sleep(ctx, backoff(attempt)); err != nil {
			p.release(ctx)
			return errDrained
		}
	}
}

func (p *TileProcessor) bootOnce(ctx context.Context) error {
	above, err := p.highestKnown(ctx)
	if err != nil {
		return err
	}
	if err := p.acquire(ctx, above); err != nil {
		return err
	}
	p.transition(Replaying)
	var history stream.Recovery
	err = p.patiently(ctx, func() (err error) {
		history, err = stream.Recover(ctx, p.seams.Log, p.tile)
		return err
	})
	if err != nil {
		return err
	}
	if history.Position.Epoch >= p.grant.Epoch {
		return errStartOver // the authority had forgotten epochs: mint above the stream's
	}
	if history.Position.IsZero() {
		return p.bootFromCheckpoint(ctx)
	}
	if err := p.replay(&history); err != nil {
		return err
	}
	p.transition(Installing)
	return p.install(ctx)
}

// highestKnown is the highest epoch that anything but the authority has seen.
func (p *TileProcessor) highestKnown(ctx context.Context) (fence.Epoch, error) {
	var last fence.Position
	err := p.patiently(ctx, func() (err error) {
		last, err = p.seams.Log.Last(ctx, p.tile)
		return err
	})
	return last.Epoch, err
}

// acquire gets an epoch from the authority: by claim if nobody holds the tile, by promotion otherwise.
func (p *TileProcessor) acquire(ctx context.Context, above fence.Epoch) error {
	c := fence.Claim{Tile: p.tile, Contact: p.contact, ID: fence.NewClaimID(), Above: above}
	err := p.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
		defer cancel()
		current := p.grant
		if current.Epoch == 0 {
			var err error
			current, err = p.seams.Authority.Lookup(ctx, p.tile)
			if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
				return err
			}
		}
		var g fence.Grant
		var err error
		switch {
		case current.ID == c.ID && current.Epoch > 0: // an earlier attempt won after all
			g = current
		case !current.Held():
			c.Expected = current.Epoch
			g, err = p.seams.Authority.Claim(ctx, c)
		case p.grant.Epoch == 0 && !p.cfg.TakeOver && current.Contact != p.contact:
			return &fence.LostError{Tile: p.tile, Current: current}
		default:
			c.Expected = current.Epoch
			g, err = p.seams.Authority.Promote(ctx, c)
		}
		if err == nil {
			p.grant = g
		}
		return err
	})
	var lost *fence.LostError
	if errors.As(err, &lost) && p.grant.Epoch > 0 {
		return p.supersededBy(fence.Owner{Tile: p.tile, Epoch: lost.Current.Epoch, Contact: lost.Current.Contact})
	}
	return err
}

// bootFromCheckpoint starts a tile the coordination store knows nothing of: from its durable snapshot,
// or empty. Both are a rebase.
func (p *TileProcessor) bootFromCheckpoint(ctx context.Context) error {
	// Without a checkpoint nobody knows how far earlier owners came. Each may have committed for a while
	// before its history was lost, so each epoch before this one moves the beginning up.
	seq := fence.Seq(1) + fence.Seq(p.grant.Epoch-1)*fence.RebaseJump
	var blob []byte
	last, err := p.seams.Log.Last(ctx, p.tile)
	if err != nil {
		return err
	}
	if p.orphaned++; !last.IsZero() && p.orphaned < orphanedBeforeBelieved {
		return errStartOver
	}
	if p.cfg.Checkpoint != nil {
		var snap fence.Snapshot
		var found bool
		err := p.patiently(ctx, func() (err error) {
			snap, found, err = p.cfg.Checkpoint(ctx, p.tile)
			return err
		})
		if err != nil {
			return fmt.Errorf("tile %s: reading its checkpoint: %w", p.tile, err)
		}
		if found {
			if snap.Epoch >= p.grant.Epoch {
				return p.mintAbove(ctx, snap.Epoch)
			}
			seq, blob, p.tick = snap.Seq+fence.RebaseJump, snap.Blob, snap.Tick
		}
	}
	if !last.IsZero() {
		// An owner hash without its stream and snapshot: somebody deleted them.
		if blob == nil {
			return &fence.CorruptError{Tile: p.tile, What: "history", At: last,
				Detail: "the owner hash names it, but stream and snapshot are gone; restore the tile from a checkpoint (Config.Checkpoint)"}
		}
		seq = max(seq, last.Seq+fence.RebaseJump)
	}
	if err := p.restore(blob); err != nil {
		return err
	}
	p.transition(Installing)
	return p.rebase(ctx, seq, last.IsZero(), p.serving)
}

// mintAbove takes the next epoch above one that the authority has forgotten, and starts over.
func (p *TileProcessor) mintAbove(ctx context.Context, epoch fence.Epoch) error {
	if err := p.acquire(ctx, epoch); err != nil {
		return err
	}
	return errStartOver
}

// replay folds a recovered history into the rules.
func (p *TileProcessor) replay(h *stream.Recovery) error {
	if err := p.restore(h.Snapshot.Blob); err != nil {
		return err
	}
	p.tick = h.Snapshot.Tick
	for i := range h.Entries {
		e := &h.Entries[i]
		b, err := stream.DecodeBatch(e.Payload)
		if err != nil {
			return &fence.CorruptError{Tile: p.tile, What: "stream entry", At: e.Position, Detail: err.Error()}
		}
		if err := p.fold(e.Tick, b); err != nil {
			return err
		}
		p.tick = max(p.tick, e.Tick)
	}
	p.position = h.Position
	return nil
}

func (p *TileProcessor) restore(blob []byte) error {
	p.actions.reset()
	p.kept.clear()
	var game []byte
	if len(blob) > 0 {
		var actions []remembered
		var err error
		if game, actions, err = openEnvelope(blob); err != nil {
			return &fence.CorruptError{Tile: p.tile, What: "snapshot", Detail: err.Error()}
		}
		for _, a := range actions {
			p.actions.put(a)
		}
	}
	if err := p.rules.Restore(game); err != nil {
		return fmt.Errorf("tile %s: the rules refuse the snapshot: %w", p.tile, err)
	}
	return nil
}

// fold applies a committed batch to the state.
func (p *TileProcessor) fold(tick fence.Tick, b *stream.Batch) error {
	if err := p.rules.Apply(tick, b.Events); err != nil {
		return fmt.Errorf("tile %s: tick %d: the rules refuse a committed batch: %w", p.tile, tick, err)
	}
	p.actions.add(tick, b.Resolutions)
	return nil
}

// install presents the new epoch with an empty first batch until every replica has confirmed it. Only
// then may the tile serve: an install that a failover can undo would let the old owner commit again.
func (p *TileProcessor) install(ctx context.Context) error {
	c := fence.Commit{Tile: p.tile, Epoch: p.grant.Epoch, Contact: p.contact, Prev: p.position, Tick: p.tick,
		Install: true, Replicas: fence.AllReplicas}
	return p.patiently(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, p.cfg.CommitTimeout)
		defer cancel()
		r, err := p.seams.Store.Commit(attempt, c)
		switch {
		case err == nil:
			p.kept.add(c)
			p.serving(r.Position)
			return nil
		case errors.Is(err, fence.ErrStale):
			return p.contested(ctx, err)
		case errors.Is(err, fence.ErrReplay), errors.Is(err, fence.ErrBehind), errors.Is(err, fence.ErrForked):
			return errStartOver
		}
		return err
	})
}

// serving makes the processor the serving owner at a position.
func (p *TileProcessor) serving(at fence.Position) {
	p.moveTo(at)
	p.transition(Serving)
}

// contested asks the authority after the store has named a higher epoch. It returns a *SupersededError,
// or errStartOver if the authority still says the tile is ours: then the store knows an epoch that the
// authority has forgotten, and the next one is minted above it.
func (p *TileProcessor) contested(ctx context.Context, refusal error) error {
	var refused *fence.RefusedError
	errors.As(refusal, &refused)
	ours, err := p.verify(ctx, refused.Current)
	if err != nil {
		return err
	}
	if ours {
		return p.mintAbove(ctx, refused.Current.Epoch)
	}
	return nil
}

// verify asks the authority whether the tile is still this processor's. If it is not, the error is the
// *SupersededError; if it cannot be asked, its *fence.StoreError. seen is the owner the store named.
func (p *TileProcessor) verify(ctx context.Context, seen fence.Owner) (ours bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
	defer cancel()
	g, err := p.seams.Authority.Lookup(ctx, p.tile)
	if err != nil {
		return false, err
	}
	if g.Epoch == p.grant.Epoch && g.ID == p.grant.ID {
		return true, nil
	}
	successor := fence.Owner{Tile: p.tile, Epoch: g.Epoch, Contact: g.Contact}
	if seen.Epoch > g.Epoch {
		successor = seen
	}
	return false, p.supersededBy(successor)
}

func (p *TileProcessor) supersededBy(o fence.Owner) error {
	return &SupersededError{Tile: p.tile, Held: p.grant.Epoch, Successor: o}
}

// patiently repeats f while it fails for want of an answer or of confirmations, for BootTimeout. It is
// for booting only; a serving tile waits as long as it takes.
func (p *TileProcessor) patiently(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(p.cfg.BootTimeout)
	for attempt := 0; ; attempt++ {
		err := f()
		if err == nil || !retryable(err) || time.Now().After(deadline) {
			return err
		}
		p.cfg.Hooks.Refused(RefusalInfo{Tile: p.tile, Err: err})
		if sleep(ctx, backoff(attempt)) != nil {
			return err
		}
	}
}

// retryable reports whether the same request may be presented again.
func retryable(err error) bool {
	return errors.Is(err, fence.ErrNotApplied) || errors.Is(err, fence.ErrUnknownOutcome) || errors.Is(err, fence.ErrUnconfirmed)
}

// release gives the tile back if this processor holds it, so that the next owner need not take it over.
func (p *TileProcessor) release(ctx context.Context) {
	if p.grant.Epoch == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
	defer cancel()
	if err := p.seams.Authority.Release(ctx, p.grant); err != nil && !errors.Is(err, fence.ErrLost) {
		p.cfg.Logger.Warn("tile could not be released; its next owner has to take it over", "tile", p.tile, "err", err)
	}
}

// backoff is 5 ms doubling to 320 ms.
func backoff(attempt int) time.Duration {
	return 5 * time.Millisecond << min(attempt, 6)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
