package relay

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// hub is one tile on this relay: its view, and the clients that watch it. It is made by the first subscription and
// dropped some time after the last has left. It does no I/O: what it lacks it wants from a repair.
//
// Locking: hub.mu may be held when a queue's mutex is taken, never the other way round.
type hub struct {
	tile   fence.TileID
	cfg    *Config
	count  *counters
	repair func(*hub) bool // starts the tile's repair task; false if the relay stops
	turn   int             // in which part of the check interval it is compared with the store

	mu     sync.Mutex
	view   view
	closed bool
	stop   func() // ends the fan-out subscription; nil: there is none
	subs   []*subscription
	empty  time.Time            // since when no client watches; zero: one does
	made   map[someAreas][]byte // of the batch that is being broadcast, for clients that do not watch every area

	// held are live frames that do not follow yet, by the position they follow. They are tried again
	// whenever the view moves.
	held      map[fence.Position]heldFrame
	heldBytes int // of their payloads

	repairState

	earlyAsked  time.Time // when the store was last asked because a client held more
	nextRefresh int       // length of the tail at which a newer snapshot is looked for
	opened      int       // bytes of tails that clients were given with new areas since one was
	behindSince time.Time // since when the store has been behind; zero: it is not
	quiet       int       // comparisons since the position was last read without an owner hash

	syncs syncCache
}

// repairState is what is known of a hub's repairs.
type repairState struct {
	want      wants
	repairing bool   // a repair task runs for this tile; there is at most one
	failed    bool   // the last attempt failed
	begun     uint64 // reads of the store so far that show where the tile ends
	answered  uint64 // the last of them that was answered, by its number
	early     bool   // a client holds more than the view: the store itself is to be read, not Config.Views
	shared    bool   // the snapshot came from Config.Views: the stream may have been trimmed past it
	disputed  bool   // the store has another history than this one, which may be from Config.Views
	doubt
}

// doubt is what is known of epochs that the store has not vouched for, and that others claim there are.
type doubt struct {
	refuted  time.Time   // when the store last contradicted a frame
	floors   bool        // a client names a higher floor than the view: what the marks say is to be read, too
	told     fence.Epoch // the highest epoch that consumers of the stream have told, by the marks read last
	toldRead uint64      // the number of the read of the store with which they were read; zero: they were not
}

// heldFrame is a live frame that waits for what it follows, or for the store's word on its epoch.
type heldFrame struct {
	*batch
	since uint64 // reads of the store that had begun when it came
}

// wants are the kinds of repair asked for.
type wants uint8

const (
	wantTail     wants = 1 << iota // what follows the present position
	wantFull                       // snapshot and tail
	wantSnapshot                   // a newer snapshot, to shorten the tail
)

// checkTurns is the number of parts of the check and mark intervals over which tiles are spread.
const checkTurns = 16

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

// maxHeld bounds the live frames kept while a repair is under way, and Config.TailBytes their payloads.
const maxHeld = 256

// subscription is one client watching one tile. It is either live, and every accepted batch is queued to
// the client, or due a Sync: at the start, after the client's queue was full, after a Resync, and when
// the tile's history was replaced.
type subscription struct {
	h      *hub
	out    *queue
	form   form
	remote string
	holder string // the actor or address that watches; empty: it is not known

	// Guarded by the hub's mutex.
	slot  int           // index in hub.subs; -1: left
	live  bool          // it gets frames as they come
	areas fence.AreaSet // that the client watches; only its reader changes it
	watch uint32        // the number of the client's last Watch; likewise
	has   clientState   // what the client holds of them once its queue is out
	waiting
}

// waiting is what is known of a client that waits for its Sync.
type waiting struct {
	since uint64       // the last read of the store that had begun when it came
	ahead bool         // it holds more than the view
	asked bool         // the store has been asked for that
	told  relaypb.Code // why it has to wait, as it was told last
}

// clientState is what a client holds of a tile.
type clientState struct {
	at    fence.Position // zero: nothing
	floor fence.Epoch    // the client must not be shown anything of a lower epoch; at least at.Epoch
}

func newHub(tile fence.TileID, cfg *Config, count *counters, repair func(*hub) bool) *hub {
	return &hub{
		tile: tile, cfg: cfg, count: count, repair: repair, turn: rand.IntN(checkTurns),
		view: view{hidden: !cfg.ShowOwners}, held: map[fence.Position]heldFrame{}, made: map[someAreas][]byte{},
		repairState: repairState{want: wantFull},
		nextRefresh: cfg.refreshFrames, empty: time.Now(),
	}
}

// deliver takes a message from the fan-out. It does not block: broadcasting only appends to queues.
func (h *hub) deliver(data []byte) {
	h.count.framesIn.Add(1)
	e, err := fence.DecodeEntry(data)
	if err != nil || e.Tile != h.tile || e.Verify() != nil {
		// What it carried shows as a gap at the next frame, or to the periodic comparison.
		h.count.corrupt.Add(1)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	b := &batch{Entry: e.Watched(fence.AreaSet{}), came: time.Now()}
	if !h.view.loaded {
		h.hold(b)
		return
	}
	if h.claimed(heldFrame{batch: b}) { // a take-over, or a forgery: the tail of the stream shows which
		h.hold(b)
		h.ask(wantTail)
		return
	}
	switch h.view.judge(&b.Entry) {
	case follows:
		h.accept(b)
		h.retryHeld()
	case duplicate:
		h.count.duplicates.Add(1)
	case stale:
		h.count.staleDrops.Add(1)
	case breaks:
		h.hold(b)
		h.broken(b.Position, b.Kind == fence.KindRebase, "frame")
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
		h.count.gaps.Add(1)
		hook.Call(h.cfg.Hooks.Gap, GapInfo{Tile: h.tile, Have: h.view.at, Got: got, By: by})
	}
	h.ask(want)
}

// ask starts the tile's repair task, or leaves the request to the one that runs.
func (h *hub) ask(w wants) {
	h.want |= w
	if h.repairing || h.closed {
		return
	}
	h.repairing = h.repair(h)
}

// accept appends a batch that follows and sends it to every client that is up to date.
func (h *hub) accept(b *batch) {
	h.view.push(b)
	h.moved()
	h.broadcast(b)
	if len(h.view.tail) > h.cfg.TailFrames || h.view.bytes > h.cfg.TailBytes {
		h.view.drop()
		h.nextRefresh = h.cfg.refreshFrames
	} else if h.view.whole && len(h.view.tail) >= h.nextRefresh {
		h.nextRefresh += h.cfg.refreshFrames / 3
		h.ask(wantSnapshot)
	}
}

// moved forgets what was encoded for the old position, and that the store was behind it.
func (h *hub) moved() {
	h.behindSince = time.Time{}
	h.syncs.clear()
}

func (h *hub) broadcast(b *batch) {
	sent := 0
	for _, s := range h.subs {
		if !s.live {
			if s.ahead {
				s.out.owe(s) // it may have waited for this
			}
			continue
		}
		if s.out.push(b.bytes(h.made, s.form, s.areas)) {
			s.has.at = b.Position
			sent++
			continue
		}
		// The queue is full. What is in it still arrives; after that the client gets a Sync.
		s.live = false
		h.count.slowDrops.Add(1)
		hook.Call(h.cfg.Hooks.SlowClient, SlowClientInfo{Remote: s.remote, Tile: h.tile, Queued: s.out.owe(s)})
	}
	clear(h.made)
	h.count.framesOut.Add(uint64(sent))
	info := QueuedInfo{Tile: h.tile, Position: b.Position, Clients: sent}
	if !b.came.IsZero() {
		info.Waited = time.Since(b.came)
	}
	hook.Call(h.cfg.Hooks.Queued, info)
}

// callDue asks for a Sync for every client that is not live, after the view has become able to give one.
func (h *hub) callDue() {
	for _, s := range h.subs {
		if !s.live {
			s.out.owe(s)
		}
	}
}

// callAhead is callDue for clients that held more than the view.
func (h *hub) callAhead() {
	for _, s := range h.subs {
		if s.ahead {
			s.out.owe(s)
		}
	}
}

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

// doubted reports whether a frame waits for the store's word on its epoch.
func (h *hub) doubted() bool {
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

// outwaited reports whether the store has now been behind for BehindGrace, so that its word is taken.
func (h *hub) outwaited(rel relation) bool {
	switch {
	case rel != behind:
		h.behindSince = time.Time{}
		return false
	case h.behindSince.IsZero():
		h.behindSince = time.Now()
	}
	return time.Since(h.behindSince) >= h.cfg.BehindGrace
}

// expire closes a hub without clients for longer than linger, so that no subscription can join, and reports that it
// did. It frees Syncs that no client asked for since the last call.
func (h *hub) expire(now time.Time, linger time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syncs.expire()
	if h.closed || h.empty.IsZero() || now.Sub(h.empty) < linger {
		return false
	}
	h.closed = true
	return true
}

// close ends the tile's fan-out subscription. A repair under way ends it itself.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.syncs.clear()
	var stop func()
	if !h.repairing {
		stop, h.stop = h.stop, nil
	}
	h.mu.Unlock()
	if stop != nil {
		stop()
	}
}
