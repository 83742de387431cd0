package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// rest is what is known of whether a tile without an owner is at rest. See Config.Unsettled. It is written by the
// holder of the tile's token under Checkpointer.mu.
type rest struct {
	ends      fence.Position // where the history ends of a tile without an owner; zero: it has one
	at        fence.Position // where it ended when it was judged
	known     bool           // it could be
	unsettled bool
	since     time.Time // when it was judged
}

// wakes reports whether the tile needs an owner, as far as it is known.
func (r *rest) wakes() bool { return !r.ends.IsZero() && r.at == r.ends && r.unsettled }

// sleeps notes whether a tile has an owner, and reports whether it has none and is to be judged. A tile of which
// coordination has lost the history counts as it was.
func (c *Checkpointer) sleeps(t *tileState, st *stream.Stat) (unjudged bool) {
	if c.cfg.Unsettled == nil || st.Err != nil {
		return false
	}
	ends := st.Last
	switch {
	case st.Owner.Present():
		ends = fence.Position{}
	case ends.IsZero() && !st.HasSnapshot && t.rest.unsettled:
		ends = t.rest.at
	}
	c.ends(t, ends)
	return !ends.IsZero() && t.rest.at != ends
}

func (c *Checkpointer) ends(t *tileState, at fence.Position) {
	if t.rest.ends == at {
		return
	}
	c.mu.Lock()
	t.rest.ends = at
	c.mu.Unlock()
}

// judge reads the history of a tile without an owner, unless it was judged where that ends, and has the tile woken if
// it is not at rest.
func (c *Checkpointer) judge(ctx context.Context, t *tileState) {
	ends := t.rest.ends
	if ends.IsZero() {
		return
	}
	if t.rest.at != ends {
		r, err := stream.Recover(ctx, c.log, t.id)
		switch {
		case err == nil:
			c.judgeBy(t, &r.Snapshot, r.Entries)
		case errors.Is(err, fence.ErrCorrupt), errors.Is(err, stream.ErrGap):
			c.judged(t, ends, false, err)
		default:
			c.cfg.Logger.Warn("not known whether a tile without an owner is at rest: its history is not read",
				"tile", t.id.String(), "error", err)
		}
	}
	if t.rest.wakes() {
		c.wake(ctx, []fence.TileID{t.id})
	}
}

// judgeBy judges a tile without an owner by its history, if that ends where the tile is to be judged.
func (c *Checkpointer) judgeBy(t *tileState, s *fence.Snapshot, tail []fence.Entry) {
	ends := s.Position
	if n := len(tail); n > 0 {
		ends = tail[n-1].Position
	}
	if t.rest.ends.IsZero() || ends != t.rest.ends || t.rest.at == ends {
		return
	}
	unsettled, err := c.cfg.Unsettled(t.id, s, tail)
	c.judged(t, ends, unsettled, err)
}

func (c *Checkpointer) judged(t *tileState, ends fence.Position, unsettled bool, err error) {
	if err != nil {
		c.cfg.Logger.Error("not known whether a tile without an owner is at rest: its history is damaged, or of "+
			"another version; it is neither collected nor woken", "tile", t.id.String(), "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.rest.at, t.rest.known, t.rest.unsettled, t.rest.since = ends, err == nil, err == nil && unsettled, time.Now()
}

func (c *Checkpointer) wake(ctx context.Context, tiles []fence.TileID) {
	if len(tiles) == 0 || c.cfg.Wake == nil {
		return
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	c.cfg.Wake(ctx, tiles)
}
