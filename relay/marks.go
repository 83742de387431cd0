package relay

import (
	"context"
	"errors"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// markBatch is how many marks go to the store in one call.
const markBatch = 512

// marker tells the store which entries the relay may still replay: those after its cached snapshots. A mark is
// renewed even when it has not moved, so that its lease does not end while a tile is watched, and released when it is
// not watched any more, so that the relay does not look like one that has stopped.
type marker struct {
	consumer stream.Consumer // whose marks it writes
	log      stream.Log
	hubs     *registry
	life     *lifecycle
	cfg      *Config
	count    *counters

	held map[fence.TileID]bool // tiles for which the store has taken a mark; touched by run alone
}

func (m *marker) run() {
	m.held = map[fence.TileID]bool{}
	marked := map[fence.TileID]int{} // tiles that have this relay's mark, as far as it knows, and their turns
	m.life.turns(checkTurns, m.cfg.markInterval, func(turn int) {
		var writes []stream.MarkWrite
		watched := map[fence.TileID]bool{}
		for _, h := range m.hubs.all() {
			watched[h.tile] = true
			seq, shown, ok := h.floorMark()
			if h.turn != turn || !ok {
				continue
			}
			marked[h.tile] = turn
			// Only this relay writes this mark, so that it may regress with the view, when the tile's history did.
			writes = append(writes, stream.MarkWrite{Tile: h.tile, Consumer: m.consumer, Seq: seq, Shown: shown,
				Rewind: true})
		}
		for tile, its := range marked {
			if its == turn && !watched[tile] {
				delete(marked, tile)
				writes = append(writes, stream.MarkWrite{Tile: tile, Consumer: m.consumer, Release: true})
			}
		}
		m.write(m.life.base, writes)
	})
	// The relay stops. What is not released in time holds the streams for its lease.
	var writes []stream.MarkWrite
	for tile := range marked {
		writes = append(writes, stream.MarkWrite{Tile: tile, Consumer: m.consumer, Release: true})
	}
	m.write(context.WithoutCancel(m.life.base), writes)
}

// write writes marks, many in a call, and does what the store says about them.
func (m *marker) write(ctx context.Context, writes []stream.MarkWrite) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.StoreTimeout)
	defer cancel()
	for batch := range slices.Chunk(writes, markBatch) {
		errs := m.log.Mark(ctx, batch) // nil: all are in force
		for i := range batch {
			switch w := &batch[i]; {
			case errs != nil && errs[i] != nil:
				m.refused(w, errs[i])
			case w.Release:
				delete(m.held, w.Tile)
			default:
				m.held[w.Tile] = true
			}
		}
	}
}

func (m *marker) refused(w *stream.MarkWrite, err error) {
	resync, outrun := errors.AsType[*stream.ResyncError](err)
	switch {
	case outrun:
		if m.held[w.Tile] {
			m.count.outrun.Add(1)
			m.cfg.Logger.Warn("the stream was trimmed past this relay: its snapshot is read again", "tile", w.Tile,
				"error", err)
		} // else it has only just come, and had no mark that could hold the stream
		if h := m.hubs.find(w.Tile); h != nil {
			h.outrun(resync)
		}
	case errors.Is(err, stream.ErrTooManyMarks):
		// What is trimmed is then read from the snapshot instead.
		m.count.marksRefused.Add(1)
	default:
		m.count.markFails.Add(1)
		m.cfg.Logger.Debug("mark not written", "tile", w.Tile, "seq", uint64(w.Seq), "error", err)
	}
}

// outrun follows a trim that went further than the mark. The clients lack nothing, if the view itself goes on from
// what is left; else snapshot and tail show what was missed.
func (h *hub) outrun(e *stream.ResyncError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || !h.view.loaded:
	case h.view.at.Seq+1 < e.Trimmed:
		h.broken(fence.Position{Seq: e.Trimmed}, false, "mark")
		h.ask(wantFull)
	default:
		h.ask(wantSnapshot)
	}
}

// floorMark is the sequence at or below which this relay needs no entry of the stream, and the highest epoch that it
// has shown, if the store has vouched for that: what fan-out or Config.Views claim must not become an owner's floor. ok
// is false while nothing is known to be committed, so that watching invented tiles writes nothing.
func (h *hub) floorMark() (seq fence.Seq, shown fence.Epoch, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || !h.view.loaded || h.view.at.IsZero():
		return 0, 0, false
	case h.view.whole && !h.shared:
		return h.view.base.Seq, min(h.view.at.Epoch, h.view.proven), true
	}
	return h.view.at.Seq, min(h.view.at.Epoch, h.view.proven), true // what is before it is here
}
