package tilefence

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// consumersAfter is for how long a tile serves before a bridge and a checkpointer must have marked its stream: the time
// to list a new tile, to snapshot it (30 s by default) and to copy that, and some more.
const consumersAfter = time.Minute

// consumers notices that nothing forwards or copies what the tiles of a host commit. A deployment whose bridge or
// checkpointer was forgotten works, but for late frames and lost checkpoints.
type consumers struct {
	host    *tilehost.Host
	log     stream.Log
	after   time.Duration            // consumersAfter, or less in tests
	missing atomic.Pointer[problems] // found last
}

// watch looks until ctx ends.
func (c *consumers) watch(ctx context.Context) error {
	for wait.For(ctx, c.after/4) {
		if missing, known := c.look(ctx); known {
			c.missing.Store(&missing)
		}
	}
	return nil
}

// look says, of a few tiles that have served for a while, what has a mark on none of their streams. Marks
// stay while their consumer is started again, and are dropped when it has been gone for a lease.
func (c *consumers) look(ctx context.Context) (missing problems, known bool) {
	var ids []fence.TileID
	for _, t := range c.host.Status() {
		if t.State == tile.Serving && time.Since(t.Since) > c.after && len(ids) < 16 {
			ids = append(ids, t.Tile)
		}
	}
	if len(ids) == 0 {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	all, err := c.log.Marks(ctx, ids)
	if err != nil {
		return nil, false // the tiles' own problems say so
	}
	marked := map[stream.Consumer]bool{}
	for _, m := range all {
		if m.Err != nil {
			return nil, false
		}
		for consumer := range m.Marks {
			marked[consumer] = true
		}
	}
	if !marked[stream.BridgeAcked] {
		missing.add("delivery", "no bridge forwards the batches of tiles: run a BridgeServer", 0, 0)
	}
	if !marked[stream.Checkpointed] {
		missing.add("checkpoints", "no checkpointer copies the snapshots of tiles: run a CheckpointServer", 0, 0)
	}
	return missing, true
}

// deafAfter is for how long a relay finds batches by comparison alone until that is a problem: a few comparisons.
const deafAfter = 10 * time.Second

// deaf notices that a relay finds batches, but only by comparing its tiles with the store. The zero value is ready; it
// is not safe for concurrent use.
type deaf struct {
	frames, caught uint64
	first, last    time.Time // when caught rose since frames has not
}

// lately is for how long batches were found without frames; zero: frames arrive, or there are no batches.
func (d *deaf) lately(frames, caught uint64, now time.Time) time.Duration {
	if frames != d.frames {
		*d = deaf{frames: frames, caught: caught}
	}
	if caught != d.caught {
		d.caught, d.last = caught, now
		if d.first.IsZero() {
			d.first = now
		}
	}
	if d.last.Sub(d.first) < deafAfter || now.Sub(d.last) > deafAfter {
		return 0
	}
	return now.Sub(d.first)
}
