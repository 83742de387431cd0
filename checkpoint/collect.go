package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// quiet reports whether a tile is to be given a time to live: it has no owner, and all that the coordination store has
// of it is durable.
func (c *Checkpointer) quiet(t *tileState, st *stream.Stat) bool {
	quiet := !st.Owner.Present() && !t.durable.IsZero() && st.Last == t.durable
	rests := c.cfg.Unsettled == nil || t.rest.at == st.Last && t.rest.known && !t.rest.unsettled
	return c.cfg.Collector != nil && quiet && rests && t.expiring != t.durable
}

// expire gives quiet tiles a time to live. The store judges once more whether they are, in the step that acts on it. A
// tile that does not expire is tried again at the next look.
func (c *Checkpointer) expire(ctx context.Context, tiles []*tileState) {
	if len(tiles) == 0 {
		return
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	asked := make([]stream.Quiet, len(tiles))
	for i, t := range tiles {
		asked[i] = stream.Quiet{Tile: t.id, Durable: t.durable}
	}
	for i, answer := range c.cfg.Collector.Expire(ctx, asked, c.cfg.CollectAfter) {
		t := tiles[i]
		switch {
		case answer.Err != nil:
			c.cfg.Logger.Warn("quiet tile could not be given a time to live; it stays in the coordination store",
				"tile", t.id.String(), "error", answer.Err)
		case answer.Expires:
			t.expiring = t.durable
			c.cfg.Logger.Info("quiet tile will leave the coordination store; its checkpoint stays",
				"tile", t.id.String(), "at", t.durable.String(), "in", c.cfg.CollectAfter)
		}
	}
}

// releasePage is how many records ReleaseQuiet looks at in one call of the authority.
const releasePage = 1000

// ReleaseQuiet releases tiles whose owner is gone for good: the record says that the tile is held and is older than
// quiet, and the coordination store knows nothing of the tile any more, because it has expired (Config.Collector). Then
// it retires the records that were released at least that long ago. So the authority's table does not keep a row for
// every tile that was ever played. No epoch is used again: see fence.Authority.Retire.
//
// An owner that is alive after all, and was cut off from the coordination store for that long, finds out at its next
// commit, as after a take-over. It is for operators and for a job that runs every few hours: it reads the whole table.
// Errors: those of the authority and of log, joined; what could be done is done.
func ReleaseQuiet(
	ctx context.Context, authority fence.Authority, log stream.Inspector, quiet time.Duration,
) (released, retired int, err error) {
	if quiet < time.Minute {
		return 0, 0, &fence.ArgumentError{Field: "quiet", Value: quiet,
			Want: "at least a minute, and longer than any outage of the coordination store"}
	}
	var after fence.TileID
	for {
		grants, listErr := authority.List(ctx, after, releasePage)
		if listErr != nil {
			return released, 0, errors.Join(err, listErr)
		}
		n, pageErr := releasePageOf(ctx, authority, log, grants, time.Now().Add(-quiet))
		released, err = released+n, errors.Join(err, pageErr)
		if len(grants) < releasePage {
			break
		}
		after = grants[len(grants)-1].Tile
	}
	for {
		n, retireErr := authority.Retire(ctx, quiet, releasePage)
		retired += n
		if retireErr != nil || n < releasePage {
			return released, retired, errors.Join(err, retireErr)
		}
	}
}

// releasePageOf releases the tiles of some records that were not used since a time.
func releasePageOf(
	ctx context.Context, authority fence.Authority, log stream.Inspector, grants []fence.Grant, before time.Time,
) (released int, err error) {
	var held []fence.Grant
	var tiles []fence.TileID
	for _, g := range grants {
		if g.Held() && g.Minted.Before(before) {
			held, tiles = append(held, g), append(tiles, g.Tile)
		}
	}
	if len(held) == 0 {
		return 0, nil
	}
	stats, err := log.Stat(ctx, tiles)
	if err != nil {
		return 0, err
	}
	for i, g := range held {
		st := &stats[i]
		if st.Err != nil || st.Owner.Present() || !st.Last.IsZero() || st.HasSnapshot {
			continue
		}
		switch relErr := authority.Release(ctx, g); {
		case relErr == nil:
			released++
		case !errors.Is(relErr, fence.ErrLost) && !errors.Is(relErr, fence.ErrNeverOwned):
			// Those two say that the tile has moved on meanwhile.
			err = errors.Join(err, relErr)
		}
	}
	return released, err
}
