package relay

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// hub is one tile on this relay: its view, and the clients that watch it. It is made by the first subscription and
// dropped some time after the last has left. It does no I/O: what it lacks it wants from a repair.
//
// Locking: hub.mu may be held when the mutex of a client's outlet is taken, never the other way round.
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
	claims
}

// claims are epochs that a frame or a client names, and that the store has not shown.
type claims struct {
	refuted    time.Time   // when the store last contradicted a frame
	floors     bool        // a client names a higher floor than the view: the marks are to be read, too
	marked     fence.Epoch // the highest epoch of the marks that consumers of the stream have, when they were read last
	markedRead uint64      // the number of the read of the store with which they were read; zero: they were not
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
// the snapshot, which it came with; anything else first from the tail, which is cheaper. by names what found it: a
// frame, the comparison (check), or a mark, of which got has only the sequence.
func (h *hub) broken(got fence.Position, rebase bool, by string) {
	want := wantTail
	if rebase {
		want, by = wantFull, "rebase"
	}
	if !h.repairing { // one gap shows in every frame until it is repaired; count it once
		h.count.gaps.Add(1)
		h.cfg.Logger.Debug("history does not continue", "tile", h.tile, "have", h.view.at, "got", got, "by", by)
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
		// There is no room. What is queued still arrives; after that the client gets a Sync.
		s.live = false
		h.count.slowDrops.Add(1)
		s.out.owe(s)
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

// graceEnded reports whether the store has been behind for Config.BehindGrace, after which its history is adopted.
func (h *hub) graceEnded(rel relation) bool {
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

// maxEnded bounds the clients for which the relay ends a tile.
const maxEnded = 16

// endAll closes the hub and ends its subscriptions, which it returns, if may allows that for all of them.
func (h *hub) endAll(may func(holder string) bool) []*subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.subs) == 0 || len(h.subs) > maxEnded {
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
