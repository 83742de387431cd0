package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// errStartOver sends a booting processor back to claim a new epoch, above all that it has seen: somebody
// committed since it replayed, and a paused master may hold the batch it now abandons under the old one; or the
// authority had forgotten epochs that others know.
var errStartOver = errors.New("start over under a new epoch")

// orphanedBeforeBelieved is how many boots in a row must find an owner hash without stream and snapshot
// before it is believed that they are gone. Once, it may be that another claimant has just begun the tile, or
// that one of the reads met a node that is behind.
const orphanedBeforeBelieved = 5

// boot claims the tile, replays its history and installs the new epoch. On return with nil the
// processor is Serving. warm says that the state is a follower's, so that the first attempt need only read what
// is missing.
func (p *TileProcessor) boot(ctx context.Context, warm bool) error {
	for attempt := 0; ; attempt++ {
		p.transition(Claiming)
		err := p.bootOnce(ctx, warm && attempt == 0)
		if err == nil {
			return nil
		}
		if errors.Is(err, errStartOver) {
			err = sleep(ctx, backoff(attempt))
			if err == nil {
				continue
			}
		}
		if ctx.Err() != nil {
			p.release(ctx)
			return errDrained
		}
		return err
	}
}

func (p *TileProcessor) bootOnce(ctx context.Context, warm bool) error {
	if !warm {
		if err := p.look(ctx); err != nil {
			return err
		}
	}
	durable := p.askCheckpoint(ctx)
	p.timing.asked()
	if err := p.acquire(ctx); err != nil {
		return err
	}
	p.timing.minted()
	p.transition(Replaying)
	if err := p.askJournal(ctx, durable); err != nil {
		return err
	}
	warm = warm && p.catchUp(ctx)
	if !warm {
		if err := p.recover(ctx, durable); err != nil {
			return err
		}
	}
	p.timing.replayed(warm)
	if p.position.Epoch >= p.grant.Epoch {
		p.saw(p.position.Epoch)
		return errStartOver // the authority had forgotten epochs: mint above the stream's
	}
	if p.position.IsZero() {
		return p.bootWithoutHistory(ctx, durable, p.serving)
	}
	if later, err := p.laterCheckpoint(ctx, durable, p.serving); err != nil || later {
		return err
	}
	p.transition(Installing)
	at, err := p.presentInstall(ctx, true)
	if err == nil {
		p.serving(at)
	}
	return err
}

// look notes what owner hash and stream know: the epochs, for the mint to be above them, and the tick.
func (p *TileProcessor) look(ctx context.Context) error {
	return p.patiently(ctx, func() error {
		// A master that hangs is soon replaced, but a client that waits for its answer does not notice.
		ctx, cancel := context.WithTimeout(ctx, p.cfg.CommitTimeout)
		defer cancel()
		owner, err := p.seams.Store.Owner(ctx, p.tile)
		if err != nil {
			return err
		}
		last, err := p.seams.Log.Last(ctx, p.tile)
		if err != nil {
			return err
		}
		p.saw(owner.Epoch, last.Epoch)
		p.lastSeen = max(p.lastSeen, owner.Tick)
		return nil
	})
}

// recover reads the whole history into the rules.
func (p *TileProcessor) recover(ctx context.Context, durable <-chan checkpointed) error {
	var history stream.Recovery
	err := p.patiently(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		history, err = stream.Recover(ctx, p.seams.Log, p.tile)
		return err
	})
	if err == nil {
		err = p.replay(&history)
	}
	if errors.Is(err, fence.ErrCorrupt) || errors.Is(err, stream.ErrGap) {
		return p.adviseCheckpoint(err, durable)
	}
	return err
}

// replay folds a recovered history into the rules.
func (p *TileProcessor) replay(h *stream.Recovery) error {
	if err := p.restore(h.Snapshot.Blob); err != nil {
		return err
	}
	p.tick, p.position = max(h.Snapshot.Tick, p.lastSeen), h.Snapshot.Position
	p.actions.expire(p.tick)
	p.memory.measured, p.memory.added = 0, 0
	for i := range h.Entries {
		if err := p.foldEntry(&h.Entries[i]); err != nil {
			return err
		}
		p.memory.grow(len(h.Entries[i].Payload)) // nobody may remove it, so it counts before it is measured
	}
	p.position = h.Position
	return nil
}

// foldEntry applies an entry of the stream that follows the state.
func (p *TileProcessor) foldEntry(e *fence.Entry) error {
	b, err := stream.DecodeBatch(e.Payload)
	if err != nil {
		return &fence.CorruptError{Tile: p.tile, What: "stream entry", At: e.Position, Detail: err.Error()}
	}
	if err := p.fold(e.Tick, b); err != nil {
		return err
	}
	p.tick, p.position = max(p.tick, e.Tick), e.Position
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
	p.gameBytes = len(game)
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

// presentInstall presents the new epoch with a first batch that holds nothing but the claim, until every replica
// has confirmed it. Only then may the tile serve: an install that a failover can undo would let the old owner
// commit again. toServe says that it is to serve from there with the state it has.
func (p *TileProcessor) presentInstall(ctx context.Context, toServe bool) (at fence.Position, err error) {
	var blob []byte
	if toServe && p.writesThrough() {
		w, err := p.snapshot()
		if err != nil {
			return at, err
		}
		blob = w.write.Blob
	}
	claim, err := stream.AppendBatch(nil, &stream.Batch{Claim: p.grant.ID})
	if err != nil {
		return at, err
	}
	c := fence.Commit{Tile: p.tile, Epoch: p.grant.Epoch, Contact: p.contact, Prev: p.position, Tick: p.tick,
		Payload: claim, Install: true, Replicas: fence.AllReplicas}
	err = p.patiently(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, p.cfg.CommitTimeout)
		defer cancel()
		r, err := p.seams.Store.Commit(attempt, c)
		switch {
		case err == nil:
			at = r.Position
			if toServe {
				return p.layBase(ctx, at, blob)
			}
			return nil
		case errors.Is(err, fence.ErrStale):
			return p.contested(ctx, err)
		case errors.Is(err, fence.ErrReplay), errors.Is(err, fence.ErrBehind), errors.Is(err, fence.ErrForked):
			return errStartOver
		}
		return err
	})
	if err == nil {
		p.kept.add(c)
	}
	return at, err
}

// serving makes the processor the serving owner at a position that every replica has confirmed.
func (p *TileProcessor) serving(at fence.Position) {
	p.timing.installed()
	p.settledTick = p.tick
	p.lastTick = p.tick // whoever owned the tile when the last snapshot was due has saved it
	p.moveTo(at)
	p.transition(Serving)
}

// contested asks the authority after the store has named a higher epoch. It returns a *SupersededError,
// or errStartOver if the authority still says the tile is ours, or has forgotten it: then the store knows an
// epoch that the authority does not, and the next one is minted above it.
func (p *TileProcessor) contested(ctx context.Context, refusal error) error {
	var refused *fence.RefusedError
	errors.As(refusal, &refused)
	p.saw(refused.Current.Epoch, refused.Current.Position.Epoch)
	if err := p.verify(ctx, refused.Current); err != nil && !errors.Is(err, errForgotten) {
		return err
	}
	return errStartOver
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

// maxBackoff is the longest wait between two attempts.
const maxBackoff = 320 * time.Millisecond

// backoff is 5 ms doubling to maxBackoff.
func backoff(attempt int) time.Duration {
	return 5 * time.Millisecond << min(attempt, 6)
}

// retryAfter is how long the pending batch waits to be presented again. A refusal or an error that comes quickly
// is what a failover looks like, and the new master may be there any moment. A store that lets CommitTimeout pass
// has more to do than it can, and is not asked again by all tiles at once: the wait begins between one and two
// eighths of CommitTimeout, its place there being the tile's own, and doubles up to maxBackoff.
func (p *TileProcessor) retryAfter() time.Duration {
	b := p.pending
	switch {
	case b.timeouts == 0 && b.waits:
		return min(backoff(b.attempts), p.cfg.TickInterval) // see beat
	case b.timeouts == 0:
		return backoff(b.attempts)
	}
	base := min(p.cfg.CommitTimeout/8<<min(b.timeouts-1, 6), maxBackoff/2)
	return base + time.Duration(spread(p.tile, retryTurn, uint64(base)))
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
