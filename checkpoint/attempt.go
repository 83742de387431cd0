package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/stream"
)

// attempt brings a tile's checkpoint up to date, calls the hooks, and schedules the next attempt. The
// caller holds the tile's busy token; attempt gives it back.
func (c *Checkpointer) attempt(ctx context.Context, t *tileState) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.tuning.Timeout)
	defer cancel()
	stage, err := c.checkpoint(ctx, t)
	if err == nil {
		c.truncate(ctx, t)
	}
	c.judge(ctx, t)
	c.settle(t, stage, err)
	return err
}

// settle ends an attempt, or a look that has shown that none is needed: it calls the hooks, returns the
// busy token and schedules the next one.
func (c *Checkpointer) settle(t *tileState, stage Stage, err error) {
	now := time.Now()
	next, delay := c.waiting, c.cadence(t)
	switch {
	case upToDate(err):
		t.failures = 0
	case mustNotWrite(err):
		t.failures = 0
		info := SkippedInfo{Tile: t.id, Err: err, Lag: now.Sub(t.current)}
		c.cfg.Logger.Error("snapshot not checkpointed", "tile", t.id.String(), "error", err, "lag", info.Lag)
		hook.Call(c.cfg.Hooks.Skipped, info)
	default:
		t.failures++
		next, delay = c.failing, c.backoff(t.failures)
		info := FailedInfo{Tile: t.id, Stage: stage, Err: err, Failures: t.failures, Retry: delay,
			Lag: now.Sub(t.current)}
		c.cfg.Logger.Warn("checkpoint failed", "tile", t.id.String(), "stage", stage.String(), "error", err,
			"failures", info.Failures, "retry", delay, "lag", info.Lag)
		hook.Call(c.cfg.Hooks.Failed, info)
	}
	if t.failures == 0 && t.truncating > 0 {
		// A journal that hangs must not take the slots of tiles that have none.
		next, delay = c.failing, c.backoff(t.truncating)
	}
	c.mu.Lock()
	c.counts.ended(err)
	t.behind = !upToDate(err)
	if !t.behind {
		t.current = now
	}
	c.mu.Unlock()
	<-t.busy
	c.schedule(t, next, delay)
}

// upToDate reports whether an attempt with this result left nothing to be done.
func upToDate(err error) bool { return err == nil || errors.Is(err, ErrNoSnapshot) }

// mustNotWrite reports whether the snapshot itself is at fault, so that trying again soon cannot help.
func mustNotWrite(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrStale) || errors.Is(err, ErrOlder)
}

// checkpoint copies the tile's snapshot if the store does not have it, then moves or renews the
// watermark. Only here, after the store's own word, does the watermark move; and only when the checkpoint
// is up to date is it renewed, so that a store which stays down cannot hold the stream's tail for ever.
func (c *Checkpointer) checkpoint(ctx context.Context, t *tileState) (Stage, error) {
	if !t.durable.IsZero() {
		// A snapshot is never past the last commit: where the two meet there is nothing newer, and an idle
		// tile's snapshot need not be fetched.
		last, err := c.last(ctx, t.id)
		if err != nil {
			return Reading, err
		}
		if last == t.durable {
			return Marking, c.mark(ctx, t)
		}
	}
	s, found, err := c.log.Snapshot(ctx, t.id)
	switch {
	case err != nil:
		return Reading, err
	case !found:
		return Reading, fmt.Errorf("tile %s: %w", t.id, ErrNoSnapshot)
	case !s.Epoch.Plausible(t.durable.Epoch) || s.Seq > fence.FarSeq:
		return Reading, &fence.CorruptError{Tile: t.id, What: "snapshot", At: s.Position,
			Detail: fmt.Sprintf("no owner comes to this position; what is durable is at %s: see tilectl repair",
				t.durable)}
	case s.Epoch < t.floor && !t.floor.FarAbove(s.Epoch): // else the floor was none, and the store judges
		return Reading, &FloorError{Tile: t.id, Floor: t.floor, Presented: s.Position}
	}
	c.judgeBy(t, &s, nil)
	if !covers(t.durable, s.Position) {
		if err := c.served(ctx, t.id, &s); err != nil {
			return Reading, err
		}
		t.floor = s.Epoch
		if err := c.write(ctx, t, s); err != nil {
			return Writing, err
		}
	}
	return Marking, c.mark(ctx, t)
}

func (c *Checkpointer) last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return c.log.Last(ctx, tile)
}

// served returns ErrUnserved for the snapshot of a rebase, until the owner hash has a later tick. An owner has ticks
// only after every replica has confirmed its rebase or install. Before, a failover may undo the rebase, and if the
// authority is restored, the owner that is confirmed instead may have a lower epoch.
func (c *Checkpointer) served(ctx context.Context, tile fence.TileID, s *fence.Snapshot) error {
	ctx, cancel := c.call(ctx)
	defer cancel()
	chunks, err := c.log.Read(ctx, []stream.Cursor{{Tile: tile, After: s.Seq - 1, Limit: 1}})
	if err == nil {
		err = chunks[0].Err
	}
	if err != nil {
		return err
	}
	at := &chunks[0]
	if len(at.Entries) == 0 || at.Entries[0].Position == s.Position && at.Entries[0].Kind != fence.KindRebase ||
		at.Owner.Tick > s.Tick {
		return nil
	}
	return fmt.Errorf("tile %s: snapshot at %s: %w", tile, s.Position, ErrUnserved)
}

// write puts the snapshot, and takes what the store has instead if that is as good.
func (c *Checkpointer) write(ctx context.Context, t *tileState, s fence.Snapshot) error {
	begin := time.Now()
	err := c.store.Put(ctx, t.id, s)
	durable := s.Position
	if older := (*OlderError)(nil); errors.As(err, &older) {
		t.floor = max(t.floor, older.Stored.Epoch)
		if older.Covers() {
			err, durable = nil, older.Stored
		}
	}
	if err != nil {
		return err
	}
	t.durable = durable
	now := time.Now()
	c.mu.Lock()
	c.counts.durable(len(s.Blob))
	c.mu.Unlock()
	hook.Call(c.cfg.Hooks.Durable, DurableInfo{Tile: t.id, Position: durable, Bytes: len(s.Blob), Took: now.Sub(begin),
		Lag: now.Sub(t.current)})
	return nil
}

// mark moves the watermark to what is durable, or renews its lease when that is due.
func (c *Checkpointer) mark(ctx context.Context, t *tileState) error {
	if !c.owesMark(t) {
		return nil
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	begin := time.Now()
	return t.wasMarked(begin, stream.MarkOne(ctx, c.log, t.markWrite()))
}

// renewEvery is how often the watermark of a tile whose checkpoint is up to date is written again, so that its lease
// (see stream.Log.Trim) does not run out: at most a third of that lease.
const renewEvery = 20 * time.Second

func (c *Checkpointer) owesMark(t *tileState) bool {
	return t.marked != t.durable.Seq || time.Since(t.renewed) >= renewEvery
}

func (t *tileState) markWrite() stream.MarkWrite {
	// The store refuses what is of a lower epoch, for good: an owner that serves below it is to hear of that.
	return stream.MarkWrite{Tile: t.id, Consumer: stream.Checkpointed, Seq: t.durable.Seq, Shown: t.durable.Epoch}
}

// wasMarked notes the answer to a mark. An answer to resync is no failure: the mark is in force, and what was
// trimmed is in a snapshot, which is all that a Checkpointer reads.
func (t *tileState) wasMarked(at time.Time, err error) error {
	if err != nil && !errors.Is(err, stream.ErrResync) {
		return err
	}
	t.marked, t.renewed = t.durable.Seq, at
	return nil
}

// owesTruncate reports whether the journal may still hold entries that the checkpoint covers.
func (c *Checkpointer) owesTruncate(t *tileState) bool {
	return c.journal != nil && t.truncated != t.durable.Seq
}

// truncate removes from the journal what the store's own word covers, and nothing after it. A failure is
// reported, and repaired by a later attempt; the checkpoint stands.
func (c *Checkpointer) truncate(ctx context.Context, t *tileState) {
	if !c.owesTruncate(t) {
		return
	}
	upTo := t.durable.Seq
	err := c.journal.Truncate(ctx, t.id, upTo)
	t.truncating++
	if err == nil {
		t.truncated, t.truncating = upTo, 0
	} else {
		c.cfg.Logger.Warn("journal not truncated", "tile", t.id.String(), "up_to", uint64(upTo), "error", err,
			"failures", t.truncating)
	}
	c.mu.Lock()
	c.counts.truncated(err)
	c.mu.Unlock()
	hook.Call(c.cfg.tuning.Truncated, truncatedInfo{Tile: t.id, UpTo: upTo, Err: err, Failures: t.truncating})
}
