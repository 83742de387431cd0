package tile

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/internal/durable"
)

// withHistory installs the epoch at the end of the history that was read, unless the durable state is later.
func (a *acquisition) withHistory(ctx context.Context, c durable.State) (acquired, error) {
	if c.Err != nil {
		a.cfg.Logger.Warn("durable store cannot be asked; the tile begins from its stream", "at", a.history.Position,
			"error", c.Err)
	} else if c.Found {
		how, err := a.judge(ctx, &c)
		if err != nil {
			return acquired{}, err
		}
		if how != durable.StreamReaches {
			return a.withLaterCheckpoint(ctx, c, how)
		}
	}
	if len(a.ownership.skip) > 0 {
		return a.skipped(ctx, c)
	}
	a.enter(Installing)
	return a.install(ctx)
}

// judge says how the durable state stands to the history that was read. errStartOver if the history, read once more, is
// another one: the two came from different masters, or another owner has committed.
func (a *acquisition) judge(ctx context.Context, c *durable.State) (durable.Standing, error) {
	at := c.At
	if !a.journals() {
		return durable.Compare(a.history.Position, at), nil
	}
	if at == a.history.Position || at.IsZero() {
		return durable.StreamReaches, nil
	}
	h, err := a.recover(ctx)
	if err != nil {
		return 0, err
	}
	how, ok := durable.CompareThrough(&h, a.history.Position, at)
	if !ok {
		return 0, errStartOver
	}
	return how, nil
}

// withLaterCheckpoint rebases a tile whose durable state is later than its stream. The checkpoint may also be ahead
// because an owner that is alive has gone on since the replay, or because the replay came from an old master: then the
// stream does not end where it was read, and the store refuses.
func (a *acquisition) withLaterCheckpoint(ctx context.Context, c durable.State, how durable.Standing) (acquired,
	error) {
	ends := a.history.Position
	if a.ownership.saw(c.At.Epoch); c.At.Epoch >= a.ownership.grant.Epoch {
		return acquired{}, errStartOver
	}
	if how == durable.Ahead {
		if err := a.replay(c.Snap, c.Tail); err != nil {
			return acquired{}, err
		}
	}
	a.cfg.Logger.Warn("tile's stream ends before its checkpoint: entries were lost with their owner; it is rebased",
		"stream", ends, "checkpoint", c.At, "state", how)
	a.enter(Installing)
	got, err := a.rebase(ctx, max(c.At.Seq, ends.Seq)+fence.RebaseJump, &ends)
	got.voided = &ends
	if err == nil && how == durable.Ahead {
		got.restored = a.loss(&c, false)
	}
	return got, err
}

// withoutHistory begins a tile of which the coordination store has neither stream nor snapshot: from its durable state,
// or empty. Both are a rebase.
func (a *acquisition) withoutHistory(ctx context.Context, c durable.State) (acquired, error) {
	// Without a checkpoint it is unknown how far earlier owners came. Each may have committed for a while
	// before its history was lost, so each epoch before this one moves the beginning up.
	seq := fence.Seq(1) + fence.Seq(a.ownership.grant.Epoch-1)*fence.RebaseJump
	last, err := a.seams.Log.Last(ctx, a.tile)
	if err != nil {
		return acquired{}, err
	}
	if a.orphaned++; !last.IsZero() && a.orphaned < orphanedBeforeBelieved {
		a.ownership.saw(last.Epoch)
		return acquired{}, errStartOver
	}
	if c, err = a.readDurable(ctx, c); err != nil {
		return acquired{}, err
	}
	if c.Found {
		if a.ownership.saw(c.At.Epoch); c.At.Epoch >= a.ownership.grant.Epoch {
			return acquired{}, errStartOver
		}
		seq = c.At.Seq + fence.RebaseJump
	}
	if !last.IsZero() {
		// An owner hash without its stream and snapshot: they were deleted.
		if !c.Found {
			return acquired{}, &fence.CorruptError{Tile: a.tile, What: "history", At: last,
				Detail: "the owner hash names it, but stream and snapshot are gone; " +
					"restore the tile from a checkpoint (Seams.Checkpoint)"}
		}
		seq = max(seq, last.Seq+fence.RebaseJump)
	}
	if !c.Found {
		c.Snap, c.Tail = nil, nil
	}
	if err = a.replay(c.Snap, c.Tail); err != nil {
		return acquired{}, err
	}
	a.enter(Installing)
	got, err := a.rebase(ctx, seq, &last)
	if err == nil && c.Found {
		got.restored = a.loss(&c, !last.IsZero())
	}
	return got, err
}

// readDurable reads the durable state, because it is needed, unless c has it already.
func (a *acquisition) readDurable(ctx context.Context, c durable.State) (durable.State, error) {
	if a.seams.Checkpoint == nil || c.Err == nil {
		return c, nil
	}
	err := a.ownership.retry(ctx, func() (err error) {
		c, err = a.durable.Read(ctx)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("tile %s: reading its checkpoint: %w", a.tile, err)
	}
	return c, nil
}

// restoreFromMemory rebases the tile on the state of this owner, which is alive, above what the durable store has: a
// later checkpoint would replace it at the next take-over. errOutlived if what was written through is of a later epoch
// than held: what its owner has acknowledged is not in this one's state.
func (a *acquisition) restoreFromMemory(ctx context.Context, c durable.State, held fence.Epoch) (acquired, error) {
	switch {
	case a.journals() && c.At.Epoch > held:
		return acquired{}, errOutlived
	case c.At.Epoch >= a.ownership.grant.Epoch:
		a.ownership.saw(c.At.Epoch)
		return acquired{}, errStartOver
	}
	return a.rebase(ctx, max(a.reached, a.history.Position.Seq, c.At.Seq)+fence.RebaseJump, a.replaces)
}

// loss is what is lost when a tile goes on from its durable state. ownerHash says that the owner hash was left, so that
// the last tick is known.
func (a *acquisition) loss(c *durable.State, ownerHash bool) *RestoredInfo {
	tick := c.Tick()
	i := &RestoredInfo{Tile: a.tile, From: c.At, SnapshotTick: tick, Taken: c.Snap.Taken}
	if n := len(c.Tail); n > 0 && a.writesBehind() && c.Tail[n-1].At.After(i.Taken) {
		i.Taken = c.Tail[n-1].At
	}
	switch {
	case a.writesThrough():
		i.Exact = true
	case ownerHash && a.history.Seen >= tick:
		i.LostTicks, i.Exact = a.history.Seen-tick, true
	default:
		i.LostTicks = a.ticksBetween(i.Taken, time.Now())
		if played, ok := a.watch.Played(tick, a.ticksBetween); ok {
			i.LostTicks = min(i.LostTicks, played)
		}
		// each owner since may have begun with one out of turn
		i.LostTicks += fence.Tick(a.ownership.grant.Epoch - c.At.Epoch)
	}
	i.LostFor = time.Duration(i.LostTicks) * a.cfg.TickInterval
	return i
}

// ticksBetween is how many ticks an owner can have played between two times, with those that it had played before
// and not yet shown to the store, and one that was late.
func (a *acquisition) ticksBetween(from, to time.Time) fence.Tick {
	d := max(0, to.Sub(from))
	return fence.Tick(d/a.cfg.TickInterval) + 1 + fence.Tick(a.cfg.RefreshEvery)
}

// orphanedBeforeBelieved is how many attempts in a row must find an owner hash without stream and snapshot before they
// are taken for lost. One may have met another claimant that has just begun the tile, or a node that is behind.
const orphanedBeforeBelieved = 5
