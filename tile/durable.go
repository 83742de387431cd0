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

// durable reads and writes a tile's durable state: its checkpoint, and for a tile that writes through the journal.
type durable struct{ *core }

// checkpointed is what the durable store has of a tile.
type checkpointed struct {
	at    fence.Position // where it ends
	found bool
	snap  *fence.Snapshot // the checkpoint; nil when only its position was asked for
	tail  []fence.Entry   // of the journal: what continues the checkpoint
	err   error
}

// tick is that of the state, which was read whole.
func (c *checkpointed) tick() fence.Tick {
	tick := c.snap.Tick
	for i := range c.tail {
		tick = max(tick, c.tail[i].Tick)
	}
	return tick
}

// checkpointPatience is how long an acquisition with a whole stream waits for the durable store. That it does not
// answer is no reason to stop a tile: what it could tell matters only after the loss of both an owner and the newest
// end of the stream, and a durable store that is down would stop every take-over.
const checkpointPatience = 2 * time.Second

// ask asks how far the durable state goes, beside the acquisition. The answer comes within checkpointPatience, to
// one call of wait.
func (d *durable) ask(ctx context.Context) (wait func() checkpointed) {
	if d.cfg.Checkpoint == nil {
		return func() checkpointed { return checkpointed{} }
	}
	ctx, cancel := context.WithTimeout(ctx, checkpointPatience)
	answer := make(chan checkpointed, 1)
	d.beside.Go(func() {
		defer cancel()
		answer <- d.checkpoint(ctx, false)
	})
	return func() checkpointed {
		select {
		case c := <-answer:
			return c
		case <-ctx.Done():
		}
		select {
		case c := <-answer: // it was there first
			return c
		default:
			return checkpointed{err: context.Cause(ctx)}
		}
	}
}

// take seals the journal under an epoch and then reads how far the durable state goes: in this order, or what an
// earlier owner appends in between is acknowledged and missed.
func (d *durable) take(ctx context.Context, epoch fence.Epoch) (c checkpointed, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.BootTimeout)
	defer cancel()
	if err = d.cfg.Journal.Seal(ctx, d.tile, epoch); err == nil {
		c, err = d.read(ctx, false)
	}
	return c, err
}

// checkpoint reads the checkpoint; without whole, its position is enough.
func (d *durable) checkpoint(ctx context.Context, whole bool) (c checkpointed) {
	if !whole && d.cfg.CheckpointHead != nil {
		c.at, c.found, c.err = d.cfg.CheckpointHead(ctx, d.tile)
		return c
	}
	var s fence.Snapshot
	s, c.found, c.err = d.cfg.Checkpoint(ctx, d.tile)
	c.at, c.snap = s.Position, &s
	return c
}

// durableReads bounds how often the durable state is read again because a checkpoint came between reading the
// last one and reading the journal, and the journal was truncated behind it.
const durableReads = 3

// read reads the checkpoint and, of a tile that writes through, what the journal has after it.
func (d *durable) read(ctx context.Context, whole bool) (checkpointed, error) {
	for attempt := 1; ; attempt++ {
		c := d.checkpoint(ctx, whole)
		if c.err != nil || !d.writesThrough() {
			return c, c.err
		}
		tail, err := d.cfg.Journal.Tail(ctx, d.tile, c.at.Seq)
		if err != nil {
			return c, err
		}
		c.tail, err = continuing(d.tile, c.at, tail)
		switch {
		case errors.Is(err, stream.ErrGap) && attempt < durableReads:
			continue
		case err != nil:
			return c, fmt.Errorf("tile %s: its journal after %s: %w", d.tile, c.at, err)
		case len(c.tail) > 0:
			c.at = c.tail[len(c.tail)-1].Position
		}
		return c, nil
	}
}

// continuing gives the part of a journal's tail that continues a position. An entry of a lower epoch than the one
// before it, which it does not follow, is left from a history that a later owner has replaced: the end. Any other
// that does not follow is a *stream.GapError.
func continuing(tile fence.TileID, at fence.Position, tail []fence.Entry) ([]fence.Entry, error) {
	for i := range tail {
		e := &tail[i]
		if err := e.Verify(); err != nil {
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

// readable reports, as nil, that the journal answers: a follower that cannot reach it would freeze the tile that it
// takes from an owner. It only reads. A write, even of a seal that is there already, would bring back one that the
// durable store has lost, by whose absence the owner learns that the store was restored to an older state.
func (d *durable) readable(ctx context.Context, after fence.Seq) error {
	if !d.writesThrough() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.BootTimeout)
	defer cancel()
	_, err := d.cfg.Journal.Tail(ctx, d.tile, after)
	return err
}

// begin makes the durable state end at a position of this processor's own epoch before it serves from there, with a
// snapshot of the state. From then on an earlier owner can neither append nor put a snapshot, and what is acknowledged
// is this snapshot and what is appended after it. Tiles that do not write through need none.
//
// errStartOver: the durable store has something that the snapshot does not supersede, which came since it was read.
func (d *durable) begin(ctx context.Context, s fence.Snapshot) error {
	if !d.writesThrough() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DrainTimeout)
	defer cancel()
	err := d.cfg.Journal.Base(ctx, d.tile, s)
	switch {
	case err == nil, retryable(err), errors.Is(err, fence.ErrInvalidArgument), errors.Is(err, fence.ErrCorrupt):
		return err
	case ctx.Err() != nil:
		return &fence.StoreError{Op: "journal base", Tile: d.tile, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	d.cfg.Logger.Warn("durable store refuses the state that the tile was to begin from; it is read again",
		"at", s.Position, "error", err)
	return errStartOver
}

// errStartOver ends an attempt to acquire a tile, and another begins under a new epoch, above all that was seen:
// another owner committed since the history was read, and a paused master may hold the batch that is now abandoned
// under the old epoch; or the authority had forgotten epochs that others know.
var errStartOver = errors.New("start over under a new epoch")

// standing is how the durable state stands to the stream.
type standing int

const (
	streamReaches standing = iota // the stream has all that the checkpoint has
	durableAhead                  // the checkpoint has more: a failover lost the end of the stream
	streamWentOn                  // a later owner has served without what the checkpoint has
)

// String names the state that the tile goes on with.
func (s standing) String() string {
	if s == durableAhead {
		return "the checkpoint's"
	}
	return "the stream's"
}

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

// compareThrough is compare for a tile that writes through. What is durable is all that was ever acknowledged, and
// only the history itself tells whether the stream has it: an owner that installed itself and died before it had
// restored what is durable leaves a stream that looks later, and is not. Where events were committed without it, that
// was an owner of another class. ok is false if the history does not have the position that was replayed.
func compareThrough(h *stream.Recovery, replayed, durable fence.Position) (how standing, ok bool) {
	last := slices.IndexFunc(h.Entries, func(e fence.Entry) bool { return e.Position == replayed })
	if last < 0 && h.Snapshot.Position != replayed {
		return 0, false
	}
	if h.Snapshot.Seq >= durable.Seq && h.Snapshot.Epoch >= durable.Epoch {
		return streamReaches, true
	}
	how = durableAhead
	if h.Snapshot.Epoch > durable.Epoch {
		how = streamWentOn
	}
	for _, e := range h.Entries[:last+1] {
		if e.Position == durable {
			return streamReaches, true
		}
		if e.Epoch > durable.Epoch && !isEmpty(&e) {
			how = streamWentOn
		}
	}
	return how, true
}

// isEmpty reports whether an entry has neither events nor outcomes, as an install.
func isEmpty(e *fence.Entry) bool {
	b, err := stream.DecodeBatch(e)
	return err == nil && b.Len() == 0
}
