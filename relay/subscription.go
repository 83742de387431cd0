package relay

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// subscription is one client watching one tile. It is either live, and every accepted batch is queued to
// the client, or due a Sync: at the start, after the client's queue was full, after a Resync, and when
// the tile's history was replaced.
type subscription struct {
	h      *hub
	out    outlet
	form   form
	holder string // the actor or address that watches; empty: it is not known

	// Guarded by the hub's mutex.
	slot  int           // index in hub.subs; -1: left
	live  bool          // it gets frames as they come
	areas fence.AreaSet // that the client watches; only its reader changes it
	watch uint32        // the number of the client's last Watch; likewise
	has   clientState   // what the client holds of them once its queue is out
	waiting
}

// outlet takes what a tile has for a client: the queue of the client's connection. Its methods do not block, and may be
// called with the hub's mutex held.
type outlet interface {
	push(frame []byte) bool  // queues a frame; false: there is no room
	force(frame []byte)      // queues a frame all the same
	owe(d due)               // has d.sync called once everything queued is out
	forgive(d due)           // takes that back
	syncWait() time.Duration // for the budgets of the client, its actor and the relay, before the next Sync
	spendSync(bytes int)     // counts a Sync that was queued
	shut(code int, reason string, flush bool) bool
}

// due is a Sync owed to the client. It is made when everything queued before is out, so that a slow client never has
// more than one waiting for a tile.
type due interface{ sync() (queued []byte) }

// waiting is what is known of a client that waits for its Sync.
type waiting struct {
	since uint64       // the last read of the store that had begun when it came
	ahead bool         // it holds more than the view
	asked bool         // the store has been asked for that
	why   relaypb.Code // the reason to wait that it was sent last
}

// clientState is what a client holds of a tile.
type clientState struct {
	at    fence.Position // zero: nothing
	floor fence.Epoch    // the client must not be shown anything of a lower epoch; at least at.Epoch
}

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

// Clients that change their areas are given the tail each time. When that has cost openedWorth times the bytes of a
// snapshot, a newer one is worth a read. For a tail shorter than openedTail there is none yet, and a snapshot counts as
// openedLeast bytes at least: a tile with a small one, or with none so far, must not be read at every opening.
const (
	openedWorth = 4
	openedTail  = 12
	openedLeast = 4 << 10
)

// openedMore counts the tail that was sent with new areas.
func (h *hub) openedMore(bytes int) {
	h.opened += bytes
	if len(h.view.tail) >= openedTail && h.opened > openedWorth*max(len(h.view.base.Blob), openedLeast) {
		h.opened = 0
		h.ask(wantSnapshot)
	}
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
// by a read that began after the client came. While the store cannot be read, it is sent CODE_STALE. A
// client is never sent back to a lower epoch: it is sent the same, and waits until the view reaches its floor; or
// CODE_UNKNOWN_EPOCH, if the store, read after it came, knows no such epoch, nor do the marks of the tile's consumers.
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

// explain reports to a client why it waits: the relay is behind, or the store contradicts the client's floor. While the
// read that the client has caused is under way, it says nothing.
func (s *subscription) explain(lower bool) {
	h := s.h
	known := max(h.marked, h.view.known())
	switch {
	case !lower && !h.failed, s.asked && !h.failed && h.answered <= s.since:
	case !h.failed && h.markedRead > s.since && known < s.has.floor:
		if s.report(relaypb.Code_CODE_UNKNOWN_EPOCH, fmt.Sprintf("the store knows no epoch above %d, and the "+
			"client's floor is %d", known, s.has.floor)) {
			h.count.unknown.Add(1)
		}
	default:
		if s.report(relaypb.Code_CODE_STALE, fmt.Sprintf("this relay is at %s and the client at %s, "+
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

// unavailable reports to the client that it has to wait because the store cannot be read.
func (s *subscription) unavailable() {
	if s.h.failed {
		s.report(relaypb.Code_CODE_UNAVAILABLE, "the tile's state cannot be read at the moment")
	}
}

// report sends the client the reason why it has to wait, each reason once; false if it was sent before.
func (s *subscription) report(code relaypb.Code, why string) bool {
	if s.why == code {
		return false
	}
	s.why = code
	s.out.force(prepare(s.form, errorMessage(s.h.tile.String(), code, why)))
	return true
}
