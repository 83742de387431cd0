package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// join adds the subscription to its hub and asks for its first Sync. It fails when the hub has been dropped.
func (s *subscription) join() bool {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	s.slot = len(h.subs)
	h.subs = append(h.subs, s)
	s.waitAnew()
	h.empty = time.Time{}
	switch {
	case h.repairing: // and comes back to every client that waits
	case !h.view.loaded:
		h.ask(wantFull)
	case h.stop == nil:
		h.ask(wantTail) // the fan-out failed, and no client was there to try it again
	}
	h.count.subscriptions.Add(1)
	s.out.owe(s)
	return true
}

// leave removes the subscription. It may be called twice.
func (s *subscription) leave() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.slot >= 0 {
		s.part()
	}
}

// here reports whether the subscription is there: the relay may have ended it.
func (s *subscription) here() bool {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.slot >= 0
}

// givenUp bounds the clients that the relay ends a tile for.
const givenUp = 16

// giveUp closes a hub whose clients all may be ended, and returns their subscriptions, which it has ended.
func (h *hub) giveUp(may func(holder string) bool) []*subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.subs) == 0 || len(h.subs) > givenUp {
		return nil
	}
	for _, s := range h.subs {
		if s.holder == "" || !may(s.holder) {
			return nil
		}
	}
	ended := slices.Clone(h.subs)
	for _, s := range ended {
		s.part()
		s.out.force(prepare(s.form, errorMessage(h.tile.String(), relaypb.Code_CODE_OVERLOADED,
			"the relay watches as many tiles as it can, and others have fewer")))
	}
	h.closed = true
	return ended
}

// part removes a subscription that is there. The hub's mutex is held.
func (s *subscription) part() {
	h := s.h
	last := len(h.subs) - 1
	h.subs[s.slot] = h.subs[last]
	h.subs[s.slot].slot = s.slot
	h.subs[last] = nil
	h.subs = h.subs[:last]
	s.slot, s.live = -1, false
	s.out.forgive(s)
	if last == 0 {
		h.empty = time.Now()
	}
	h.count.subscriptions.Add(-1)
}

// waitAnew begins what is known of a client's wait for its Sync. The hub's mutex is held.
func (s *subscription) waitAnew() { s.waiting = waiting{since: s.h.begun} }

// resync answers a client that says what it holds of the areas that it watches from now on: nothing more is sent before
// the Sync.
func (s *subscription) resync(areas fence.AreaSet, watch uint32, have clientState) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.areas, s.watch = areas, watch
	s.live, s.has = false, have
	s.waitAnew()
	s.out.owe(s)
}

// watchAreas changes the areas that the client is sent. One that is live is given the new ones as they are at its
// position, and goes on; if that cannot be, or it waits for a Sync anyway, its next Sync gives it everything.
func (s *subscription) watchAreas(areas fence.AreaSet, number uint32) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	added, some := areas.Without(s.areas)
	s.areas, s.watch = areas, number
	if !some || s.slot < 0 {
		return
	}
	if s.live {
		if s.open(added) {
			return
		}
		s.live = false
		s.waitAnew()
		s.out.owe(s)
	}
	s.has.at = fence.Position{}
}

// open queues areas that the client watches newly; false if that cannot be. The hub's mutex is held.
func (s *subscription) open(added fence.AreaSet) bool {
	if s.out.syncWait() != 0 {
		return false
	}
	h, parts := s.h, takeScratch()
	defer parts.free()
	m, ok := h.view.open(parts, added)
	if !ok {
		return false
	}
	m.Watch = s.watch
	msg := prepare(s.form, syncMessage(h.tile, m))
	if !s.out.push(msg) {
		return false
	}
	s.out.spendSync(len(msg))
	h.count.opened.Add(1)
	h.openedMore(len(msg) - len(m.Blob))
	return true
}

// sync queues the Sync that the subscription is due. The client's writer calls it. Without the state to do so it
// asks for it, and the repair comes back to every client that is not live. It returns what it queued.
func (s *subscription) sync() (queued []byte) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case s.slot < 0 || s.live:
		return nil
	case !h.view.loaded:
		s.unavailable()
		return nil
	case s.mustWait():
		return nil
	}
	msg := h.syncs.message(&h.view, s)
	if msg == nil {
		s.unavailable()
		h.ask(wantFull)
		return nil
	}
	s.live, s.has.at = true, h.view.at
	s.waitAnew()
	h.count.syncsOut.Add(1)
	s.out.force(msg)
	s.out.spendSync(len(msg))
	return msg
}

// mustWait reports whether the client must wait because it holds more than the view: it comes from a relay that had the
// last frames sooner, or this relay is cut off. It is sent back to an older state of the same epoch only by the store:
// by a read that began after the client came. While the store cannot be read, it is told that the relay is stale. A
// client is never sent back to a lower epoch: it is told the same, and waits until the view reaches its floor; or that
// the store knows no such epoch, if that was read after it came, the marks of the tile's consumers included.
func (s *subscription) mustWait() bool {
	h, v := s.h, &s.h.view
	lower := v.at.Epoch < s.has.floor
	more := !s.has.at.IsZero() && v.compare(s.has.at) == ahead
	s.ahead = lower || more && h.answered <= s.since
	if !s.ahead {
		return false
	}
	if !s.asked && h.askEarly(lower) {
		s.asked = true
		return true
	}
	s.explain(lower)
	return true
}

// explain tells a client why it waits: the relay is behind, or the store contradicts the client's floor. While the read
// that the client has caused is under way, it says nothing.
func (s *subscription) explain(lower bool) {
	h := s.h
	known := max(h.doubt.told, h.view.known())
	switch {
	case !lower && !h.failed, s.asked && !h.failed && h.answered <= s.since:
	case !h.failed && h.toldRead > s.since && known < s.has.floor:
		if s.tell(relaypb.Code_CODE_UNKNOWN_EPOCH, fmt.Sprintf("the store knows no epoch above %d, and the "+
			"client's floor is %d", known, s.has.floor)) {
			h.count.unknown.Add(1)
		}
	default:
		if s.tell(relaypb.Code_CODE_STALE, fmt.Sprintf("this relay is at %s and the client at %s, "+
			"floor %d: wait, or try another relay", h.view.at, s.has.at, s.has.floor)) && (h.failed || s.asked) {
			h.count.stale.Add(1) // else the client has asked too soon, which says nothing about the relay
		}
	}
}

// askEarly asks the store for what a client claims to hold; false if it was asked a moment ago. Any client can
// claim to hold anything, so a tile asks only once in earlyPause. Other clients wait for the frame that they
// hold, or for the next comparison.
func (h *hub) askEarly(floor bool) bool {
	now := time.Now()
	if !h.early {
		if now.Sub(h.earlyAsked) < h.cfg.earlyPause {
			return false
		}
		h.early, h.earlyAsked = true, now
	}
	h.floors = h.floors || floor
	h.ask(wantTail)
	return true
}

// unavailable tells the client that it has to wait because the store cannot be read.
func (s *subscription) unavailable() {
	if s.h.failed {
		s.tell(relaypb.Code_CODE_UNAVAILABLE, "the tile's state cannot be read at the moment")
	}
}

// tell says once for each reason why the client has to wait, and reports whether this was the time.
func (s *subscription) tell(code relaypb.Code, why string) bool {
	if s.told == code {
		return false
	}
	s.told = code
	s.out.force(prepare(s.form, errorMessage(s.h.tile.String(), code, why)))
	return true
}
