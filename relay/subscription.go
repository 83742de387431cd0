package relay

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// subscription is one client watching one tile. It is either live, and every accepted batch is queued to
// the client, or due a Sync: at the start, after the client's queue was full, after a Resync, and when
// the tile's history was replaced. The client's writer takes due Syncs when its queue is empty, so that a
// slow client never has more than one waiting.
type subscription struct {
	c *client
	h *hub

	// Guarded by the hub's mutex.
	slot  int         // index in hub.subs; -1: left
	live  bool        // it gets frames as they come
	has   clientState // what the client holds once its queue is out
	told  bool        // the client knows why it has to wait
	asked bool        // the client holds more than the view, and the store has been asked

	isDue bool // guarded by the client's mutex: it is in client.dues
}

// clientState is what a client holds of a tile.
type clientState struct {
	at    fence.Position // zero: nothing
	floor fence.Epoch    // the client must not be shown anything of a lower epoch; at least at.Epoch
}

// join adds a subscription and asks for its first Sync. It fails when the hub has been dropped.
func (h *hub) join(s *subscription) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	s.slot = len(h.subs)
	h.subs = append(h.subs, s)
	h.empty = time.Time{}
	switch {
	case h.repairing: // and comes back to everybody who waits
	case !h.view.loaded:
		h.ask(wantFull)
	case h.stop == nil:
		h.ask(wantTail) // the fan-out failed, and nobody was there to try it again
	}
	h.r.count.subscriptions.Add(1)
	s.c.due(s)
	return true
}

// leave removes a subscription. It may be called twice.
func (h *hub) leave(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.slot < 0 {
		return
	}
	last := len(h.subs) - 1
	h.subs[s.slot] = h.subs[last]
	h.subs[s.slot].slot = s.slot
	h.subs[last] = nil
	h.subs = h.subs[:last]
	s.slot, s.live = -1, false
	if last == 0 {
		h.empty = time.Now()
	}
	h.r.count.subscriptions.Add(-1)
}

// resync answers a client that says what it holds: nothing more is sent before the Sync.
func (h *hub) resync(s *subscription, have clientState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.live, s.has, s.asked, s.told = false, have, false, false
	s.c.due(s)
}

// sync queues the Sync a subscription is due. The client's writer calls it. Without the state to do so it
// asks for it, and the repair comes back to everybody who is not live.
func (h *hub) sync(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.slot < 0 || s.live {
		return
	}
	if !h.view.loaded {
		h.unavailable(s)
		return
	}
	if h.behindClient(s) {
		return
	}
	msg := h.encodedSync(s.c.encoding, s.has.at)
	if msg == nil {
		h.unavailable(s)
		h.ask(wantFull)
		return
	}
	s.live, s.told, s.asked, s.has.at = true, false, false, h.view.at
	h.r.count.syncsOut.Add(1)
	s.c.force(msg)
}

// A client that comes from another relay may hold a little more than this one.
const (
	maxEarly   = 16          // batches by which it may be ahead
	earlyEvery = time.Second // between questions to the store for this reason
)

// behindClient reports whether the client must wait because it holds more than the view: it comes from a relay
// that received the last frames sooner, or this relay is cut off. The store is asked once before the client is
// sent back to an older state of the same epoch. A client is never sent back to a lower epoch: it is told that
// the relay is stale, and waits until the view reaches its floor.
func (h *hub) behindClient(s *subscription) bool {
	lower := h.view.at.Epoch < s.has.floor
	early := !s.has.at.IsZero() && h.view.compare(s.has.at) == ahead && s.has.at.Seq <= h.view.at.Seq+maxEarly
	if !lower && !early {
		return false
	}
	if !s.asked && h.askEarly() {
		s.asked = true
		return true
	}
	if lower {
		h.tell(s, relaypb.Code_CODE_STALE, fmt.Sprintf(
			"this relay is at epoch %d and the client at epoch %d: wait, or try another relay", h.view.at.Epoch, s.has.floor))
	}
	return lower
}

// askEarly asks the store for what a client claims to hold; false if it was asked a moment ago. Any client can
// claim to hold anything, so a tile asks only once in earlyEvery.
func (h *hub) askEarly() bool {
	if h.repairing {
		return true
	}
	now := time.Now()
	if now.Sub(h.earlyAsked) < earlyEvery {
		return false
	}
	h.earlyAsked = now
	h.ask(wantTail)
	return true
}

// unavailable tells a client that it has to wait because the store cannot be read.
func (h *hub) unavailable(s *subscription) {
	if h.failed {
		h.tell(s, relaypb.Code_CODE_UNAVAILABLE, "the tile's state cannot be read at the moment")
	}
}

// tell says once why a client has to wait.
func (h *hub) tell(s *subscription, code relaypb.Code, why string) {
	if s.told {
		return
	}
	s.told = true
	if code == relaypb.Code_CODE_STALE {
		h.r.count.stale.Add(1)
	}
	s.c.force(prepare(s.c.encoding, errorMessage(h.tile.String(), code, why)))
}

// encodedSync returns the Sync from a position, encoded once for all clients that hold the same. It
// returns nil when the view cannot make it.
func (h *hub) encodedSync(e relaypb.Encoding, have fence.Position) []byte {
	if _, known := h.view.after(have); !known {
		have = fence.Position{}
	}
	key := syncKey{encoding: e, from: have}
	if msg := h.syncs[key]; msg != nil {
		h.syncsUsed = true
		return msg
	}
	s, ok := h.view.sync(have)
	if !ok {
		return nil
	}
	msg := prepare(e, syncMessage(h.tile, s))
	h.syncs[key], h.syncsUsed = msg, true
	return msg
}

// callDue asks for a Sync for everybody who is not live, after the view has become able to give one.
func (h *hub) callDue() {
	for _, s := range h.subs {
		if !s.live {
			s.c.due(s)
		}
	}
}
