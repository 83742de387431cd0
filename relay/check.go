package relay

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

const (
	checkTurns = 16  // parts of the check and mark intervals over which the tiles are spread
	checkBatch = 128 // tiles compared in one call to the store
	checkLimit = 32  // batches read of one tile in a comparison; more are left to a repair
	quietTurns = 6   // comparisons of a tile without an owner hash for each reading of its last position
)

// checkLoop compares every tile with the store once in CheckInterval: what no frame reveals (the last
// message before a silence was lost, a subscription died unnoticed, the history was replaced) shows here.
// It reads what follows the tile's position, together with the owner hash, so that most differences are
// repaired by the comparison itself; a batch still on its way through the fan-out is merely early.
func (r *Relay) checkLoop() {
	r.turns(checkTurns, r.cfg.CheckInterval, func(turn int) {
		var hubs []*hub
		for _, h := range r.allHubs() {
			if h.turn == turn {
				hubs = append(hubs, h)
			}
		}
		for len(hubs) > 0 {
			n := min(len(hubs), checkBatch)
			r.check(hubs[:n])
			hubs = hubs[n:]
		}
	})
}

func (r *Relay) check(hubs []*hub) {
	cursors := make([]stream.Cursor, 0, len(hubs))
	asked := make([]*hub, 0, len(hubs))
	for _, h := range hubs {
		if at, ok := h.position(); ok {
			asked = append(asked, h)
			cursors = append(cursors, stream.Cursor{Tile: h.tile, After: at.Seq, Limit: checkLimit})
		}
	}
	if len(cursors) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.base, r.cfg.StoreTimeout)
	defer cancel()
	chunks, err := r.log.Read(ctx, cursors)
	if err != nil {
		r.cfg.Logger.Warn("comparison with the store failed", "tiles", len(cursors), "error", err)
		return
	}
	for i, h := range asked {
		c := &chunks[i]
		for j := range c.Entries {
			if c.Entries[j].Verify(h.tile) != nil {
				c.Entries, c.Poison = c.Entries[:j], &stream.Poison{Tile: h.tile}
				break
			}
		}
		h.checked(c, checkLimit)
		if !c.Owner.Present() && h.dueLast() {
			if last, err := r.log.Last(ctx, h.tile); err == nil {
				h.checkedLast(last)
			}
		}
	}
}

// position is where the view stands; ok is false while there is nothing to compare.
func (h *hub) position() (at fence.Position, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.view.at, h.view.loaded && !h.repairing && !h.closed
}

// dueLast reports whether to read the last position of a tile that has no owner hash. Such a tile does
// not move; one call a tile is dear, so it is done now and then.
func (h *hub) dueLast() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.view.at.IsZero() {
		return false
	}
	h.quiet++
	if h.quiet < quietTurns {
		return false
	}
	h.quiet = 0
	return true
}

func (h *hub) checkedLast(p fence.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed && !h.repairing && h.view.loaded {
		h.compareEnd(p)
	}
}

// sweepLoop does what depends only on time passing: pings, clients that are silent or too slow, tiles
// nobody watches.
func (r *Relay) sweepLoop() {
	shortest := min(r.cfg.PingInterval, r.cfg.SlowTimeout, r.cfg.Linger)
	every := min(max(shortest/4, 5*time.Millisecond), time.Second)
	for r.sleep(every) {
		now := time.Now()
		for _, c := range r.allClients() {
			c.sweep(now)
		}
		for _, h := range r.allHubs() {
			if h.sweep(now, r.cfg.Linger) {
				r.spawn(func() { r.dropHub(h) }) // ending a subscription is I/O
			}
		}
	}
}

// sweep frees Syncs nobody asked for lately, and reports whether the hub has been unwatched for longer than
// linger; it is closed then, so that no subscription can join.
func (h *hub) sweep(now time.Time, linger time.Duration) (gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.syncsUsed {
		clear(h.syncs)
	}
	h.syncsUsed = false
	if h.closed || h.empty.IsZero() || now.Sub(h.empty) < linger {
		return false
	}
	h.closed = true
	return true
}
