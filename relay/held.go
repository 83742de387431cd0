package relay

import (
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
)

// heldFrame is a live frame that waits for what it follows, or for the store to confirm its epoch.
type heldFrame struct {
	*batch
	since uint64 // reads of the store that had begun when it came
}

// maxHeld bounds the live frames kept while a repair is under way, and Config.TailBytes their payloads.
const maxHeld = 256

// hold keeps a live frame until what it follows is known. Of two that follow the same position the
// higher epoch's stays, since the other's owner has been superseded; but one of an epoch that the store has not vouched
// for takes no other's place.
func (h *hub) hold(b *batch) {
	if o := h.held[b.Prev]; o.batch != nil {
		if o.Epoch > b.Epoch && !h.claimed(o) || h.claimed(heldFrame{batch: b}) && !h.claimed(o) {
			return
		}
		h.unhold(o)
	}
	if len(h.held) >= maxHeld || h.heldBytes+len(b.Payload) > h.cfg.TailBytes {
		h.unholdAll() // the store has them all
	}
	h.held[b.Prev] = heldFrame{b, h.begun}
	h.heldBytes += len(b.Payload)
}

func (h *hub) unhold(f heldFrame) {
	delete(h.held, f.Prev)
	h.heldBytes -= len(f.Payload)
}

func (h *hub) unholdAll() {
	clear(h.held)
	h.heldBytes = 0
}

// claimed reports whether a held frame is of an epoch that the store has not vouched for. Before the first load none
// is: it is not known yet what the store has.
func (h *hub) claimed(f heldFrame) bool { return h.view.loaded && f.Epoch > h.view.known() }

// unconfirmed reports whether a frame waits for a read of the store to confirm its epoch.
func (h *hub) unconfirmed() bool {
	for _, f := range h.held {
		if h.claimed(f) {
			return true
		}
	}
	return false
}

// refute drops the frames that came before a read of the store began, and whose epoch that has not shown. A bridge
// forwards what it has read from the store, so either they are forged, or a failover has lost what they tell of.
func (h *hub) refute(read uint64) {
	for _, f := range h.held {
		if !h.claimed(f) || f.since >= read {
			continue
		}
		h.unhold(f)
		h.refuted = time.Now()
		h.count.forged.Add(1)
		h.cfg.refusals.Error("frame dropped: the coordination store knows no such epoch; see who can publish on the "+
			"fan-out", "tile", h.tile, "position", f.Position, "known", uint64(h.view.known()))
		hook.Call(h.cfg.onForged, forgedInfo{Tile: h.tile, Position: f.Position, Known: h.view.known()})
	}
}

// retryHeld accepts the held frames that follow by now, and forgets those that are known or superseded.
func (h *hub) retryHeld() {
	for len(h.held) > 0 {
		f := h.held[h.view.at]
		if f.batch == nil || h.claimed(f) || h.view.judge(&f.Entry) != follows {
			break
		}
		h.unhold(f)
		h.accept(f.batch)
	}
	for _, f := range h.held {
		if v := h.view.judge(&f.Entry); v == duplicate || v == stale {
			h.unhold(f)
		}
	}
}

// reach is the position that a shared view must reach so that the held frames follow it; zero: there are none.
func (h *hub) reach() (need fence.Position) {
	for prev, b := range h.held {
		if h.claimed(b) {
			continue // the store itself has to show it
		}
		if b.Kind == fence.KindRebase {
			prev = b.Position // it follows nothing: its own snapshot is wanted
		}
		if prev.Epoch > need.Epoch || prev.Epoch == need.Epoch && prev.Seq > need.Seq {
			need = prev
		}
	}
	return need
}
