package checkpoint

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// callTimeout bounds one call of the coordination store, but for that of a snapshot, if Config.Timeout does not. Tiles
// of all nodes wait for such a call, in a survey or for a slot, and a node that hangs must not use up the time that the
// others have for the next one.
const callTimeout = 2 * time.Second

// call returns the context of one call of the coordination store.
func (c *Checkpointer) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(c.cfg.tuning.Timeout, callTimeout))
}

// survey asks the coordination store about many tiles at once, in one or two round trips a node, and renews
// their watermarks in another. It settles the tiles whose checkpoint is up to date, and those that could not
// be read, which it counts; it returns the others: those that have changed, and those whose head could not be read,
// which need an attempt that says why. The caller holds all tiles' busy tokens, and keeps those of the tiles returned.
//
// So a tile that does nothing costs a share of a round trip, and a tile that plays on has its snapshot
// fetched only when there is a new one.
func (c *Checkpointer) survey(ctx context.Context, tiles []*tileState) (changed, unread []*tileState, failed int) {
	var known, unsure, current []*tileState
	for _, t := range tiles {
		if t.durable.IsZero() {
			unsure = append(unsure, t)
		} else {
			known = append(known, t)
		}
	}
	idle, others, failed := c.compareLast(ctx, known)
	current = append(current, idle...)
	idle, changed, unread = c.compareSnapshots(ctx, append(unsure, others...))
	current = append(current, idle...)
	changed, current = c.owing(changed, current)
	return changed, unread, failed + c.renew(ctx, current)
}

// owing moves the tiles whose journal is still to be truncated to those that need an attempt.
func (c *Checkpointer) owing(changed, current []*tileState) (more, rest []*tileState) {
	for _, t := range current {
		if !t.durable.IsZero() && c.owesTruncate(t) {
			changed = append(changed, t)
		} else {
			rest = append(rest, t)
		}
	}
	return changed, rest
}

// compareLast finds the tiles whose checkpoint is where the owner is. A snapshot is never past the last
// commit: where the two meet there is nothing newer.
func (c *Checkpointer) compareLast(ctx context.Context, tiles []*tileState) (idle, others []*tileState, failed int) {
	if len(tiles) == 0 {
		return nil, nil, 0
	}
	cursors := make([]stream.Cursor, len(tiles))
	for i, t := range tiles {
		cursors[i] = stream.Cursor{Tile: t.id, After: t.durable.Seq, Limit: 1}
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	chunks, err := c.log.Read(ctx, cursors)
	for i, t := range tiles {
		tileErr := err
		if err == nil {
			tileErr = chunks[i].Err
		}
		switch {
		case tileErr != nil:
			failed++
			c.settle(t, Reading, tileErr)
		case chunks[i].Owner.Present() && chunks[i].Owner.Position == t.durable:
			c.ends(t, fence.Position{})
			idle = append(idle, t)
		default:
			others = append(others, t)
		}
	}
	return idle, others, failed
}

// compareSnapshots finds the tiles whose snapshot is their checkpoint, or that have neither, by the heads; and those
// whose head could not be read.
func (c *Checkpointer) compareSnapshots(
	ctx context.Context, tiles []*tileState,
) (current, changed, unread []*tileState) {
	if c.inspector == nil || len(tiles) == 0 {
		return nil, tiles, nil
	}
	ids := make([]fence.TileID, len(tiles))
	for i, t := range tiles {
		ids[i] = t.id
	}
	bounded, cancel := c.call(ctx)
	defer cancel()
	stats, err := c.inspector.Stat(bounded, ids)
	if err != nil {
		return nil, nil, tiles
	}
	var quiet []*tileState
	var unsettled []fence.TileID
	for i, t := range tiles {
		st := &stats[i]
		unjudged := c.sleeps(t, st)
		if t.rest.wakes() {
			unsettled = append(unsettled, t.id)
		}
		t.gone = st.Err == nil && !t.expiring.IsZero() && t.expiring == t.durable && st.Last.IsZero() && !st.HasSnapshot
		switch {
		case st.Err != nil:
			unread = append(unread, t)
		case unjudged:
			changed = append(changed, t)
		case t.gone || st.Snapshot.Position == t.durable: // both zero: no snapshot yet
			if current = append(current, t); c.quiet(t, st) {
				quiet = append(quiet, t)
			}
		default:
			changed = append(changed, t)
		}
	}
	c.expire(ctx, quiet)
	c.wake(ctx, unsettled)
	return current, changed, unread
}

// renew settles tiles whose checkpoint is up to date, after renewing the watermarks that are due.
func (c *Checkpointer) renew(ctx context.Context, tiles []*tileState) (failed int) {
	var due []*tileState
	var writes []stream.MarkWrite
	for _, t := range tiles {
		if t.durable.IsZero() || t.gone || !c.owesMark(t) {
			c.settle(t, Marking, nil)
			continue
		}
		due, writes = append(due, t), append(writes, t.markWrite())
	}
	if len(due) == 0 {
		return 0
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	begin := time.Now()
	errs := c.log.Mark(ctx, writes)
	for i, t := range due {
		var err error
		if errs != nil {
			err = errs[i]
		}
		if err = t.wasMarked(begin, err); err != nil {
			failed++
		}
		c.settle(t, Marking, err)
	}
	return failed
}
