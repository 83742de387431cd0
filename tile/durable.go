package tile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// checkpointPatience is how long a boot with a whole stream waits for the durable store. That it does not answer
// is no reason to keep a tile from being played: what it could tell matters only after the loss of both an
// owner and the newest end of the stream, and a durable store that is down would stop every take-over.
const checkpointPatience = 2 * time.Second

// checkpointed is what the durable store says of a tile: its checkpoint, and for a tile that writes through the
// entries of the journal that continue it.
type checkpointed struct {
	at    fence.Position // where it ends
	found bool
	snap  *fence.Snapshot // the checkpoint; nil when only its position was asked for
	tail  []fence.Entry   // of the journal
	tick  fence.Tick      // of the state, once it is restored
	err   error
}

// askCheckpoint asks how far the durable state goes, beside whatever the boot does meanwhile. The answer comes
// within checkpointPatience.
func (p *TileProcessor) askCheckpoint(ctx context.Context) chan checkpointed {
	answer := make(chan checkpointed, 1)
	if p.writesThrough() {
		return answer // see askJournal
	}
	if p.cfg.Checkpoint == nil {
		answer <- checkpointed{}
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointPatience)
	asked := make(chan checkpointed, 1)
	p.beside.Go(func() {
		asked <- p.readCheckpoint(ctx, false)
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

// askJournal is askCheckpoint for a tile that writes through, which cannot begin without the answer, and cannot ask
// before it has an epoch to seal the journal with.
func (p *TileProcessor) askJournal(ctx context.Context, answer chan<- checkpointed) error {
	if !p.writesThrough() {
		return nil
	}
	c, err := p.takeJournal(ctx)
	answer <- c
	return err
}

// readCheckpoint reads the checkpoint; without whole, its position is enough.
func (p *TileProcessor) readCheckpoint(ctx context.Context, whole bool) (c checkpointed) {
	if !whole && p.cfg.CheckpointHead != nil {
		c.at, c.found, c.err = p.cfg.CheckpointHead(ctx, p.tile)
		return c
	}
	var s fence.Snapshot
	s, c.found, c.err = p.cfg.Checkpoint(ctx, p.tile)
	c.at, c.snap = s.Position, &s
	return c
}

// durableReads bounds how often the durable state is read again because a checkpoint came between reading the
// last one and reading the journal, and the journal was truncated behind it.
const durableReads = 3

// readDurable reads the checkpoint and, of a tile that writes through, what the journal has after it.
func (p *TileProcessor) readDurable(ctx context.Context, whole bool) (checkpointed, error) {
	for attempt := 1; ; attempt++ {
		c := p.readCheckpoint(ctx, whole)
		if c.err != nil || !p.writesThrough() {
			return c, c.err
		}
		tail, err := p.cfg.Journal.Tail(ctx, p.tile, c.at.Seq)
		if err != nil {
			return c, err
		}
		c.tail, err = follow(p.tile, c.at, tail)
		switch {
		case errors.Is(err, stream.ErrGap) && attempt < durableReads:
			continue
		case err != nil:
			return c, fmt.Errorf("tile %s: its journal after %s: %w", p.tile, c.at, err)
		case len(c.tail) > 0:
			c.at = c.tail[len(c.tail)-1].Position
		}
		return c, nil
	}
}

// wholeCheckpoint reads the whole durable state, because it is needed, unless c has it already. It waits for
// BootTimeout.
func (p *TileProcessor) wholeCheckpoint(ctx context.Context, c checkpointed) (checkpointed, error) {
	if p.cfg.Checkpoint == nil || c.err == nil && (!c.found || c.snap != nil) {
		return c, nil
	}
	err := p.patiently(ctx, func() (err error) {
		c, err = p.readDurable(ctx, true)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("tile %s: reading its checkpoint: %w", p.tile, err)
	}
	return c, nil
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

// judge says how the durable state stands to the history that was replayed. For a tile that writes through,
// what is durable is all that was ever acknowledged, and only the history itself tells whether the stream has it:
// an owner that installed itself and died before it had restored what is durable leaves a stream that looks later,
// and is not. Where somebody has committed events without it, that was an owner of another class. errStartOver if
// the history, read once more, is not the one that was replayed: the two came from different masters, or somebody
// has gone on.
func (p *TileProcessor) judge(ctx context.Context, c *checkpointed) (standing, error) {
	if !p.writesThrough() {
		return compare(p.position, c.at), nil
	}
	if c.at == p.position || c.at.IsZero() {
		return streamReaches, nil
	}
	var h stream.Recovery
	err := p.patiently(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		h, err = stream.Recover(ctx, p.seams.Log, p.tile)
		return err
	})
	if err != nil {
		return 0, err
	}
	if !endAt(&h, p.position) {
		return 0, errStartOver
	}
	return stands(&h, c.at), nil
}

// endAt cuts a history off behind a position, and reports whether it has that position.
func endAt(h *stream.Recovery, at fence.Position) bool {
	last := slices.IndexFunc(h.Entries, func(e fence.Entry) bool { return e.Position == at })
	if last < 0 && h.Snapshot.Position != at {
		return false
	}
	h.Entries, h.Position = h.Entries[:last+1], at
	return true
}

// stands is judge, for the history of a stream.
func stands(h *stream.Recovery, durable fence.Position) standing {
	if h.Snapshot.Seq >= durable.Seq && h.Snapshot.Epoch >= durable.Epoch {
		return streamReaches
	}
	how := durableAhead
	if h.Snapshot.Epoch > durable.Epoch {
		how = streamWentOn
	}
	for i := range h.Entries {
		e := &h.Entries[i]
		if e.Position == durable {
			return streamReaches
		}
		if e.Epoch > durable.Epoch && e.Events > 0 {
			how = streamWentOn
		}
	}
	return how
}

// laterCheckpoint rebases the tile if its checkpoint is later than the history that was replayed, calls done with
// the position it took, and reports whether it did.
func (p *TileProcessor) laterCheckpoint(ctx context.Context, durable <-chan checkpointed, done func(fence.Position)) (later bool, err error) {
	c := <-durable
	if c.err != nil {
		p.cfg.Logger.Warn("durable store cannot be asked; the tile begins from its stream", "tile", p.tile, "at", p.position, "err", c.err)
		return false, nil //nolint:nilerr // logged: see checkpointPatience
	}
	ends := p.position
	how, err := p.judge(ctx, &c)
	if err != nil || !c.found || how == streamReaches {
		return false, err
	}
	// The checkpoint may also be ahead because an owner that is alive has gone on since the replay, or because
	// the replay came from an old master. The store refuses to install there, and once it has done so nobody
	// commits any more: only then is it certain what is about to be replaced. A rebase takes an epoch of its own.
	p.installing()
	installed, err := p.presentInstall(ctx, false)
	if err != nil {
		return false, err
	}
	p.position = installed
	if c, err = p.mintAbove(ctx, c); err != nil {
		return false, err
	}
	if how == durableAhead {
		if c, err = p.restoreCheckpoint(ctx, c); err != nil {
			return false, err
		}
	}
	p.cfg.Logger.Warn("tile's stream ends before its checkpoint: entries were lost with their owner; it is rebased",
		"tile", p.tile, "stream", ends, "checkpoint", c.at, "state", how)
	err = p.rebase(ctx, max(c.at.Seq, installed.Seq)+fence.RebaseJump, false, done)
	if err == nil {
		p.cfg.Hooks.Healed(HealInfo{Tile: p.tile, Rebased: true, Voided: ends, At: p.position})
		if how == durableAhead {
			p.restored(p.lossSince(&c, false))
		}
	}
	return true, err
}

// mintAbove takes another epoch, above what is durable. With it the journal is taken over again; if anything has
// come to it since, the boot starts over.
func (p *TileProcessor) mintAbove(ctx context.Context, c checkpointed) (checkpointed, error) {
	p.saw(c.at.Epoch)
	if err := p.acquire(ctx); err != nil || !p.writesThrough() {
		return c, err
	}
	again, err := p.takeJournal(ctx)
	if err == nil && again.at != c.at {
		return again, errStartOver
	}
	return again, err
}

// restoreCheckpoint makes the durable state the tile's.
func (p *TileProcessor) restoreCheckpoint(ctx context.Context, c checkpointed) (checkpointed, error) {
	c, err := p.wholeCheckpoint(ctx, c)
	switch {
	case err != nil:
		return c, err
	case !c.found:
		return c, fmt.Errorf("tile %s: its checkpoint is gone; Config.CheckpointHead and Config.Checkpoint disagree", p.tile)
	}
	return c, p.fromDurable(&c)
}

// fromDurable folds a durable state that was read whole.
func (p *TileProcessor) fromDurable(c *checkpointed) error {
	if err := p.restore(c.snap.Blob); err != nil {
		return err
	}
	p.tick, p.position = c.snap.Tick, c.snap.Position
	for i := range c.tail {
		if err := p.foldEntry(&c.tail[i]); err != nil {
			return err
		}
	}
	c.tick = p.tick
	p.tick = max(p.tick, p.lastSeen)
	p.actions.expire(p.tick)
	return nil
}

// installing enters Installing, unless a processor that has served is taking its tile back.
func (p *TileProcessor) installing() {
	if !p.owns() {
		p.transition(Installing)
	}
}

// String names the state that the tile goes on with.
func (s standing) String() string {
	if s == durableAhead {
		return "the checkpoint's"
	}
	return "the stream's"
}

// bootWithoutHistory starts a tile of which the coordination store has neither stream nor snapshot: from its
// durable state, or empty. Both are a rebase; done is called with the position it took.
func (p *TileProcessor) bootWithoutHistory(ctx context.Context, durable <-chan checkpointed, done func(fence.Position)) error {
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
	c, err := p.wholeCheckpoint(ctx, <-durable)
	if err != nil {
		return err
	}
	if c.found {
		if p.saw(c.at.Epoch); c.at.Epoch >= p.grant.Epoch {
			return errStartOver
		}
		seq = c.at.Seq + fence.RebaseJump
	}
	if !last.IsZero() {
		// An owner hash without its stream and snapshot: somebody deleted them.
		if !c.found {
			return &fence.CorruptError{Tile: p.tile, What: "history", At: last,
				Detail: "the owner hash names it, but stream and snapshot are gone; restore the tile from a checkpoint (Config.Checkpoint)"}
		}
		seq = max(seq, last.Seq+fence.RebaseJump)
	}
	if c.found {
		err = p.fromDurable(&c)
	} else {
		err = p.restore(nil)
	}
	if err != nil {
		return err
	}
	p.installing()
	err = p.rebase(ctx, seq, last.IsZero(), done)
	if err == nil && c.found {
		p.restored(p.lossSince(&c, !last.IsZero()))
	}
	return err
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
