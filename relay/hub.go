package relay

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
	"github.com/tilefence/tilefence/stream"
)

// maxHeld bounds the live frames kept while a repair is under way.
const maxHeld = 256

// hub is one tile on this relay: its view, the clients that watch it, and the repair that is under way.
// It is made by the first subscription and dropped some time after the last has left.
//
// Locking: hub.mu may be held when a client's mutex is taken, never the other way round, and no I/O is
// done under it.
type hub struct {
	r    *Relay
	tile fence.TileID
	turn int // in which part of the check interval it is compared with the store

	mu     sync.Mutex
	view   view
	closed bool
	stop   func() // ends the fan-out subscription; nil: there is none
	subs   []*subscription
	empty  time.Time // since when nobody watches; zero: somebody does

	// held are live frames that do not follow yet, by the position they follow. They are tried again
	// whenever the view moves.
	held map[fence.Position]*batch

	want      wants
	repairing bool // a repair task runs for this tile; there is at most one
	failed    bool // the last attempt failed

	earlyAsked  time.Time // when the store was last asked because a client held more
	nextRefresh int       // length of the tail at which a newer snapshot is looked for
	behindSince time.Time // since when the store has been behind; zero: it is not
	quiet       int       // comparisons since the position was last read without an owner hash

	syncs     map[syncKey][]byte // the Syncs of the present position, encoded once
	syncsUsed bool               // since the last sweep
}

// wants are the kinds of repair asked for.
type wants uint8

const (
	wantTail     wants = 1 << iota // what follows the present position
	wantFull                       // snapshot and tail
	wantSnapshot                   // a newer snapshot, to shorten the tail
)

// syncKey names one encoded Sync: from which position (zero: from scratch), for which encoding.
type syncKey struct {
	encoding relaypb.Encoding
	from     fence.Position
}

func newHub(r *Relay, tile fence.TileID) *hub {
	return &hub{
		r: r, tile: tile, turn: rand.IntN(checkTurns),
		held: map[fence.Position]*batch{}, syncs: map[syncKey][]byte{},
		want: wantFull, nextRefresh: r.cfg.RefreshFrames, empty: time.Now(),
	}
}

// deliver takes a message from the fan-out. It does not block: broadcasting only appends to queues.
func (h *hub) deliver(data []byte) {
	h.r.count.framesIn.Add(1)
	f, err := stream.DecodeFrame(data)
	if err != nil || f.Tile != h.tile || f.Verify(h.tile) != nil {
		// What it carried shows as a gap at the next frame, or to the periodic comparison.
		h.r.count.corrupt.Add(1)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	b := &batch{tile: h.tile, Entry: f.Entry}
	if !h.view.loaded {
		h.hold(b)
		return
	}
	switch h.view.judge(&b.Entry) {
	case follows:
		h.accept(b)
		h.retryHeld()
	case duplicate:
		h.r.count.duplicates.Add(1)
	case stale:
		h.r.count.staleDrops.Add(1)
	case breaks:
		h.hold(b)
		h.broken(b.Position, b.Rebase, "frame")
	}
}

// broken notes that the history does not continue here and asks for a repair. A rebase is repaired from
// the snapshot, which it came with; anything else first from the tail, which is cheaper.
func (h *hub) broken(got fence.Position, rebase bool, by string) {
	want := wantTail
	if rebase {
		want, by = wantFull, "rebase"
	}
	if !h.repairing { // one gap shows in every frame until it is repaired; count it once
		h.r.count.gaps.Add(1)
		h.r.cfg.Hooks.Gap(GapInfo{Tile: h.tile, Have: h.view.at, Got: got, By: by})
	}
	h.ask(want)
}

// ask starts the tile's repair task, or leaves word with the one that runs.
func (h *hub) ask(w wants) {
	h.want |= w
	if h.repairing || h.closed {
		return
	}
	h.repairing = h.r.spawn(h.repairTask)
}

// accept appends a batch that follows and sends it to everybody who is up to date.
func (h *hub) accept(b *batch) {
	takeover := b.Epoch > h.view.at.Epoch
	h.view.push(b)
	h.moved()
	h.broadcast(b)
	if takeover {
		h.callDue() // clients that waited for this epoch
	}
	if len(h.view.tail) > h.r.cfg.TailFrames || h.view.bytes > h.r.cfg.TailBytes {
		h.view.drop()
		h.nextRefresh = h.r.cfg.RefreshFrames
	} else if h.view.whole && len(h.view.tail) >= h.nextRefresh {
		h.nextRefresh += h.r.cfg.RefreshFrames / 3
		h.ask(wantSnapshot)
	}
}

// moved forgets what was encoded for the old position, and that the store was behind it.
func (h *hub) moved() {
	h.behindSince = time.Time{}
	if len(h.syncs) > 0 {
		clear(h.syncs)
	}
}

func (h *hub) broadcast(b *batch) {
	sent := 0
	for _, s := range h.subs {
		if !s.live {
			continue
		}
		if s.c.push(b.bytes(s.c.encoding)) {
			s.has.at = b.Position
			sent++
			continue
		}
		// The queue is full. What is in it still arrives; after that the client gets a Sync.
		s.live = false
		h.r.count.slowDrops.Add(1)
		h.r.cfg.Hooks.SlowClient(SlowClientInfo{Remote: s.c.remote, Tile: h.tile, Queued: s.c.due(s)})
	}
	h.r.count.framesOut.Add(uint64(sent))
}

// hold keeps a live frame until what it follows is known. Of two that follow the same position the
// higher epoch's stays: the other's owner has been superseded.
func (h *hub) hold(b *batch) {
	if o := h.held[b.Prev]; o != nil && o.Epoch > b.Epoch {
		return
	}
	if len(h.held) >= maxHeld {
		clear(h.held) // the store has them all
	}
	h.held[b.Prev] = b
}

// retryHeld accepts the held frames that follow by now, and forgets those that are known or superseded.
func (h *hub) retryHeld() {
	for len(h.held) > 0 {
		b := h.held[h.view.at]
		if b == nil || h.view.judge(&b.Entry) != follows {
			break
		}
		delete(h.held, b.Prev)
		h.accept(b)
	}
	for prev, b := range h.held {
		if v := h.view.judge(&b.Entry); v == duplicate || v == stale {
			delete(h.held, prev)
		}
	}
}

// checked compares the view with what the store says follows it.
func (h *hub) checked(c *stream.Chunk, limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.repairing || !h.view.loaded {
		return
	}
	h.view.setOwner(c.Owner)
	for i := range c.Entries {
		b := &batch{tile: h.tile, Entry: c.Entries[i]}
		switch h.view.judge(&b.Entry) {
		case follows:
			h.r.count.caught.Add(1)
			h.accept(b)
		case breaks:
			h.broken(b.Position, b.Rebase, "check")
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
}

// compareEnd acts on the position at which the store's history ends. The caller has already taken the
// entries after the view's own, so a store that is merely ahead has moved since: its frames are on their
// way.
func (h *hub) compareEnd(p fence.Position) {
	switch rel := h.view.compare(p); rel {
	case same, ahead, behind:
		if h.outwaited(rel) {
			h.ask(wantFull)
		}
	case lower:
		h.r.count.lowerEpoch.Add(1)
	case forked:
		h.broken(p, false, "check")
		h.ask(wantFull)
	}
}

// outwaited reports whether the store has now been behind for BehindGrace, so that its word is taken.
func (h *hub) outwaited(rel relation) bool {
	switch {
	case rel != behind:
		h.behindSince = time.Time{}
		return false
	case h.behindSince.IsZero():
		h.behindSince = time.Now()
	}
	return time.Since(h.behindSince) >= h.r.cfg.BehindGrace
}
