package relay

import (
	"context"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

const (
	checkBatch = 128 // tiles compared in one call to the store
	checkLimit = 32  // batches read of one tile in a comparison; more are left to a repair
	quietTurns = 6   // comparisons of a tile without an owner hash for each reading of its last position
)

// checker compares every tile with the store once in CheckInterval: what no frame reveals (the last
// message before a silence was lost, a subscription died unnoticed, the history was replaced) shows here.
// It reads what follows the tile's position, together with the owner hash, so that most differences are
// repaired by the comparison itself; a batch still on its way through the fan-out is merely early.
type checker struct {
	log  stream.Log
	hubs *registry
	life *lifecycle
	cfg  *Config
}

func (c *checker) run() {
	c.life.turns(checkTurns, c.cfg.CheckInterval, func(turn int) {
		var hubs []*hub
		for _, h := range c.hubs.all() {
			if h.turn == turn {
				hubs = append(hubs, h)
			}
		}
		for batch := range slices.Chunk(hubs, checkBatch) {
			c.check(batch)
		}
	})
}

func (c *checker) check(hubs []*hub) {
	cursors := make([]stream.Cursor, 0, len(hubs))
	asked, numbers := make([]*hub, 0, len(hubs)), make([]uint64, 0, len(hubs))
	for _, h := range hubs {
		if at, number, ok := h.compareFrom(); ok {
			asked, numbers = append(asked, h), append(numbers, number)
			cursors = append(cursors, stream.Cursor{Tile: h.tile, After: at.Seq, Limit: checkLimit})
		}
	}
	if len(cursors) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.life.base, c.cfg.StoreTimeout)
	defer cancel()
	chunks, err := c.log.Read(ctx, cursors)
	if err != nil {
		c.cfg.Logger.Warn("comparison with the store failed", "tiles", len(cursors), "error", err)
		for _, h := range asked {
			h.notCompared()
		}
		return
	}
	for i, h := range asked {
		chunk := &chunks[i]
		for j := range chunk.Entries {
			if chunk.Entries[j].Verify() != nil {
				chunk.Entries, chunk.Poison = chunk.Entries[:j], &stream.Poison{Tile: h.tile}
				break
			}
		}
		h.checked(chunk, checkLimit, numbers[i])
		if !chunk.Owner.Present() && h.dueLast() {
			if last, err := c.log.Last(ctx, h.tile); err == nil {
				h.checkedLast(last)
			}
		}
	}
}

// compareFrom is where the view stands, and the number of the read; ok is false while there is nothing to compare.
func (h *hub) compareFrom() (at fence.Position, number uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun++
	return h.view.at, h.begun, h.view.loaded && !h.repairing && !h.closed
}

// notCompared lets clients that hold more than the view ask for a repair: if that fails too, it reports to them.
func (h *hub) notCompared() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.callAhead()
}

// dueLast reports whether to read the last position of a tile that has no owner hash. Such a tile does
// not move, and a call for one tile is expensive, so it is made now and then.
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
		h.view.prove(p.Epoch)
		h.compareEnd(p)
	}
}

// checked compares the view with what the store says follows it.
func (h *hub) checked(c *stream.Chunk, limit int, number uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.repairing || !h.view.loaded {
		return
	}
	defer h.callAhead()
	h.view.prove(c.Owner.Epoch)
	for i := range c.Entries {
		h.view.prove(c.Entries[i].Epoch)
	}
	h.view.setOwner(c.Owner)
	for i := range c.Entries {
		b := &batch{Entry: c.Entries[i].Watched(fence.AreaSet{})}
		switch h.view.judge(&b.Entry) {
		case follows:
			h.count.caught.Add(1)
			h.accept(b)
		case breaks:
			h.broken(b.Position, b.Kind == fence.KindRebase, "check")
			return
		case duplicate, stale:
		}
	}
	switch {
	case c.Poison != nil:
		h.ask(wantFull) // a snapshot may lie past it by now
	case len(c.Entries) >= limit:
		h.ask(wantTail) // there may be more
	}
	if len(c.Entries) > 0 {
		h.retryHeld()
	}
	if c.Owner.Present() {
		h.compareEnd(c.Owner.Position)
	}
	if !h.repairing { // else that answers
		h.answered = number
	}
}

// compareEnd acts on the head of the store's history. The caller has already taken the
// entries after the view's own, so a store that is merely ahead has moved since: its frames are on their
// way.
func (h *hub) compareEnd(p fence.Position) {
	switch rel := h.view.compare(p); rel {
	case same, ahead, behind:
		if h.graceEnded(rel) {
			h.disputed = true
			h.ask(wantFull)
		}
	case lower:
		h.count.lowerEpoch.Add(1)
	case forked:
		h.disputed = true
		h.broken(p, false, "check")
		h.ask(wantFull)
	}
}
