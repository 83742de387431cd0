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

// markLoop tells the store which entries the relay may still replay: those after its cached snapshots. The mark is
// renewed even when it has not moved, so that its lease does not end while a tile is watched, and released when it is
// not watched any more, so that nobody takes this relay for one that has stopped.
func (r *Relay) markLoop() {
	marked := map[fence.TileID]int{} // tiles that have this relay's mark, as far as it knows, and their turns
	r.turns(checkTurns, r.cfg.MarkInterval, func(turn int) {
		var writes []stream.MarkWrite
		watched := map[fence.TileID]bool{}
		for _, h := range r.allHubs() {
			watched[h.tile] = true
			seq, ok := h.floorMark()
			if h.turn != turn || !ok {
				continue
			}
			marked[h.tile] = turn
			// No one else has this mark, so that it may go back with the view, when the tile's history did.
			writes = append(writes, stream.MarkWrite{Tile: h.tile, Consumer: r.consumer, Seq: seq, Rewind: true})
		}
		for tile, its := range marked {
			if its == turn && !watched[tile] {
				delete(marked, tile)
				writes = append(writes, stream.MarkWrite{Tile: tile, Consumer: r.consumer, Release: true})
			}
		}
		r.writeMarks(r.base, writes)
	})
	// The relay stops. What is not released in time holds the streams for its lease.
	var writes []stream.MarkWrite
	for tile := range marked {
		writes = append(writes, stream.MarkWrite{Tile: tile, Consumer: r.consumer, Release: true})
	}
	r.writeMarks(context.WithoutCancel(r.base), writes)
}

// writeMarks writes marks, many in a call, and does what the store says about them.
func (r *Relay) writeMarks(ctx context.Context, writes []stream.MarkWrite) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	for batch := range slices.Chunk(writes, markBatch) {
		for i, err := range r.log.Mark(ctx, batch) {
			if err != nil {
				r.markRefused(&batch[i], err)
			}
		}
	}
}

func (r *Relay) markRefused(w *stream.MarkWrite, err error) {
	resync, outrun := errors.AsType[*stream.ResyncError](err)
	switch {
	case outrun:
		r.count.outrun.Add(1)
		r.cfg.Logger.Warn("the stream was trimmed past this relay: its snapshot is read again", "tile", w.Tile, "error", err)
		if h := r.known(w.Tile); h != nil {
			h.outrun(resync)
		}
	case errors.Is(err, stream.ErrTooManyMarks):
		// What is trimmed is then read from the snapshot instead.
		r.count.marksRefused.Add(1)
	default:
		r.count.markFails.Add(1)
		r.cfg.Logger.Debug("mark not written", "tile", w.Tile, "seq", uint64(w.Seq), "error", err)
	}
}

// known is the tile's hub if there is one.
func (r *Relay) known(tile fence.TileID) *hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hubs[tile]
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

// floorMark is the sequence at or below which this relay needs no entry of the stream. ok is false while nothing is
// known to be committed, so that watching invented tiles writes nothing.
func (h *hub) floorMark() (seq fence.Seq, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || !h.view.loaded || h.view.at.IsZero():
		return 0, false
	case h.view.whole:
		return h.view.base.Seq, true
	}
	return h.view.at.Seq, true
}
