package tile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// checkpointPatience is how long a boot with a whole stream waits for the durable store. That it does not answer
// is no reason to keep a tile from being played: what it could tell matters only after the loss of both an
// owner and the newest end of the stream, and a durable store that is down would stop every take-over.
const checkpointPatience = 2 * time.Second

// checkpointed is what the durable store says of a tile.
type checkpointed struct {
	at    fence.Position
	found bool
	snap  *fence.Snapshot // nil when only the position was asked for
	err   error
}

// askCheckpoint asks how far the durable state goes, beside whatever the boot does meanwhile. The answer comes
// within checkpointPatience.
func (p *TileProcessor) askCheckpoint(ctx context.Context) <-chan checkpointed {
	answer := make(chan checkpointed, 1)
	if p.cfg.Checkpoint == nil {
		answer <- checkpointed{}
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointPatience)
	asked := make(chan checkpointed, 1)
	p.beside.Go(func() {
		var c checkpointed
		if p.cfg.CheckpointHead != nil {
			c.at, c.found, c.err = p.cfg.CheckpointHead(ctx, p.tile)
		} else {
			var s fence.Snapshot
			s, c.found, c.err = p.cfg.Checkpoint(ctx, p.tile)
			c.at, c.snap = s.Position, &s
		}
		asked <- c
	})
	p.beside.Go(func() {
		defer cancel()
		select {
		case c := <-asked:
			answer <- c
		case <-ctx.Done():
			answer <- checkpointed{err: context.Cause(ctx)}
		}
	})
	return answer
}

// readCheckpoint reads the whole durable snapshot, because it is needed: it waits for BootTimeout.
func (p *TileProcessor) readCheckpoint(ctx context.Context) (snap fence.Snapshot, found bool, err error) {
	if p.cfg.Checkpoint == nil {
		return fence.Snapshot{}, false, nil
	}
	err = p.patiently(ctx, func() (err error) {
		snap, found, err = p.cfg.Checkpoint(ctx, p.tile)
		return err
	})
	if err != nil {
		return fence.Snapshot{}, false, fmt.Errorf("tile %s: reading its checkpoint: %w", p.tile, err)
	}
	return snap, found, nil
}

// wholeCheckpoint is readCheckpoint, unless what was asked beside the replay will do.
func (p *TileProcessor) wholeCheckpoint(ctx context.Context, c checkpointed) (snap fence.Snapshot, found bool, err error) {
	switch {
	case c.err == nil && !c.found:
		return fence.Snapshot{}, false, nil
	case c.err == nil && c.snap != nil:
		return *c.snap, true, nil
	}
	return p.readCheckpoint(ctx)
}

// standing is how the durable state stands to the stream.
type standing int

const (
	streamReaches standing = iota // the stream has all that the checkpoint has
	durableAhead                  // the checkpoint has more: a failover lost the end of the stream
	streamWentOn                  // a later owner has served without what the checkpoint has
)

// compare says how a durable snapshot stands to where the stream ends.
//
// A stream at no lower epoch and no lower sequence contains the snapshot, or has replaced it. A snapshot of the
// same or a higher epoch that the stream does not reach is later than the stream: the owner and the newest end
// of the stream were lost together. A stream of a higher epoch and a lower sequence belongs to an owner that
// began without the snapshot and has served since; what it lacks was void before, so its state stands, but
// its sequence has to be moved above those already used.
func compare(ends, durable fence.Position) standing {
	switch {
	case durable.Epoch <= ends.Epoch && durable.Seq <= ends.Seq:
		return streamReaches
	case durable.Epoch < ends.Epoch:
		return streamWentOn
	}
	return durableAhead
}

// laterCheckpoint rebases the tile if its checkpoint is later than the history that was replayed, and reports
// whether it did: the processor is Serving then.
func (p *TileProcessor) laterCheckpoint(ctx context.Context, durable <-chan checkpointed) (later bool, err error) {
	c := <-durable
	if c.err != nil {
		p.cfg.Logger.Warn("durable store cannot be asked; the tile begins from its stream", "tile", p.tile, "at", p.position, "err", c.err)
		return false, nil //nolint:nilerr // logged: see checkpointPatience
	}
	ends := p.position
	how := compare(ends, c.at)
	if !c.found || how == streamReaches {
		return false, nil
	}
	// The checkpoint may also be ahead because an owner that is alive has gone on since the replay, or because
	// the replay came from an old master. The store refuses to install there, and once it has done so nobody
	// commits any more: only then is it certain what is about to be replaced. A rebase takes an epoch of its own.
	p.transition(Installing)
	if p.position, err = p.presentInstall(ctx); err != nil {
		return false, err
	}
	p.saw(c.at.Epoch)
	if err := p.acquire(ctx); err != nil {
		return false, err
	}
	if how == durableAhead {
		if c.at, err = p.restoreCheckpoint(ctx, c.snap); err != nil {
			return false, err
		}
	}
	p.cfg.Logger.Warn("tile's stream ends before its checkpoint: entries were lost with their owner; it is rebased",
		"tile", p.tile, "stream", ends, "checkpoint", c.at, "state", how)
	err = p.rebase(ctx, max(c.at.Seq, p.position.Seq)+fence.RebaseJump, false, p.serving)
	if err == nil {
		p.cfg.Hooks.Healed(HealInfo{Tile: p.tile, Rebased: true, Voided: ends, At: p.position})
	}
	return true, err
}

// restoreCheckpoint makes the durable snapshot the state; read is nil if it has not been read yet.
func (p *TileProcessor) restoreCheckpoint(ctx context.Context, read *fence.Snapshot) (at fence.Position, err error) {
	if read == nil {
		s, found, err := p.readCheckpoint(ctx)
		switch {
		case err != nil:
			return fence.Position{}, err
		case !found:
			return fence.Position{}, fmt.Errorf("tile %s: its checkpoint is gone; Config.CheckpointHead and Config.Checkpoint disagree", p.tile)
		}
		read = &s
	}
	p.tick = max(read.Tick, p.lastSeen)
	return read.Position, p.restore(read.Blob)
}

// String names the state that the tile goes on with.
func (s standing) String() string {
	if s == durableAhead {
		return "the checkpoint's"
	}
	return "the stream's"
}

// bootWithoutHistory starts a tile of which the coordination store has neither stream nor snapshot: from its
// durable snapshot, or empty. Both are a rebase.
func (p *TileProcessor) bootWithoutHistory(ctx context.Context, durable <-chan checkpointed) error {
	// Without a checkpoint nobody knows how far earlier owners came. Each may have committed for a while
	// before its history was lost, so each epoch before this one moves the beginning up.
	seq := fence.Seq(1) + fence.Seq(p.grant.Epoch-1)*fence.RebaseJump
	last, err := p.seams.Log.Last(ctx, p.tile)
	if err != nil {
		return err
	}
	if p.orphaned++; !last.IsZero() && p.orphaned < orphanedBeforeBelieved {
		p.saw(last.Epoch)
		return errStartOver
	}
	snap, found, err := p.wholeCheckpoint(ctx, <-durable)
	if err != nil {
		return err
	}
	if found {
		if p.saw(snap.Epoch); snap.Epoch >= p.grant.Epoch {
			return errStartOver
		}
		seq, p.tick = snap.Seq+fence.RebaseJump, max(snap.Tick, p.lastSeen)
	}
	if !last.IsZero() {
		// An owner hash without its stream and snapshot: somebody deleted them.
		if !found {
			return &fence.CorruptError{Tile: p.tile, What: "history", At: last,
				Detail: "the owner hash names it, but stream and snapshot are gone; restore the tile from a checkpoint (Config.Checkpoint)"}
		}
		seq = max(seq, last.Seq+fence.RebaseJump)
	}
	if err := p.restore(snap.Blob); err != nil {
		return err
	}
	p.transition(Installing)
	return p.rebase(ctx, seq, last.IsZero(), p.serving)
}

// adviseCheckpoint adds to a history that cannot be replayed what an operator can do about it. Whether what is
// left of it is worth more than the checkpoint is not for a program to decide.
func (p *TileProcessor) adviseCheckpoint(err error, durable <-chan checkpointed) error {
	c := <-durable
	if c.err != nil || !c.found {
		if errors.Is(c.err, fence.ErrCorrupt) {
			return errors.Join(err, c.err)
		}
		return err
	}
	k := fence.KeysOf(p.tile)
	return fmt.Errorf("%w; its checkpoint is at %s: to go on from there and lose what came after, delete %s and %s, leave %s, and run the tile again",
		err, c.at, k.Stream, k.Snapshot, k.Owner)
}
