package viewcachetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
)

// RebuildLimit is how long a viewcache.Cache lets a rebuild last, and so how long readers are given the version before.
const RebuildLimit = 5 * time.Second

// Audit compares a view with what was committed, and says what is wrong with it. It trusts nothing that the view says
// of itself: the snapshot must be the state that its owner had there, and the entries those that were committed. It
// does not ask how far the view reaches; see Begin.
func (w *World) Audit(tile fence.TileID, v *viewcache.View) error {
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.audit(tile, v)
}

func (h *history) audit(tile fence.TileID, v *viewcache.View) error {
	at := v.Snapshot.Position
	if why := h.auditBase(&v.Snapshot); !at.IsZero() && why != "" {
		return wrong(tile, v, "the snapshot at %s %s", at, why)
	}
	for i := range v.Entries {
		e := &v.Entries[i]
		if !h.has(tile, e, at) {
			return wrong(tile, v, "entry %s is not the one committed after %s", e.Position, at)
		}
		at = e.Position
	}
	if at != v.Position {
		return wrong(tile, v, "its entries end at %s", at)
	}
	return nil
}

func wrong(tile fence.TileID, v *viewcache.View, format string, args ...any) error {
	return fmt.Errorf("tile %s at %s: %s", tile, v.Position, fmt.Sprintf(format, args...))
}

// has reports whether an entry, without its private part, is the one that was committed after a position.
func (h *history) has(tile fence.TileID, e *fence.Entry, after fence.Position) bool {
	truth := h.entries[e.Position]
	return e.Prev == after && truth.Position == e.Position && truth.Prev == after && truth.Tick == e.Tick &&
		truth.At.Equal(e.At) && truth.Hidden == e.Hidden && len(e.Private) == 0 && e.Tile == tile &&
		bytes.Equal(truth.Payload, e.Payload)
}

// auditBase says what is wrong with the snapshot of a view.
func (h *history) auditBase(s *fence.Snapshot) string {
	game, private, err := stream.OpenSnapshot(s.Blob)
	switch {
	case err != nil:
		return "cannot be read: " + err.Error()
	case len(private) > 0:
		return "has its private part"
	case sha256.Sum256(game) != h.states[s.Position]:
		return "is not the state there"
	case s.Sum != fence.Checksum(game):
		return "has another's checksum"
	}
	return ""
}

// Compare reads what a log has of a tile since the last call, and says where it differs from what was committed. If it
// is called before each trim, the log has been compared as a whole.
func (w *World) Compare(ctx context.Context, log stream.Log, tile fence.TileID) error {
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	err := stream.Follow(ctx, log, tile, h.compared, func(e *fence.Entry) error {
		if seen := e.Watched(fence.AreaSet{}); !h.has(tile, &seen, h.compared) {
			return fmt.Errorf("tile %s: the log has %s after %s, which was not committed", tile, e.Position, h.compared)
		}
		h.compared = e.Position
		return nil
	})
	if err == nil && h.compared != h.at {
		return fmt.Errorf("tile %s: the log ends at %s, and %s was committed", tile, h.compared, h.at)
	}
	return err
}

// headAt is where a history ended at a time.
type headAt struct {
	time time.Time
	at   fence.Position
}

// HeadAt is the position at which a tile's history ended at a time, or later: a commit counts from when it returned.
func (w *World) HeadAt(tile fence.TileID, t time.Time) fence.Position {
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.headAt(t)
}

func (h *history) headAt(t time.Time) fence.Position {
	for i := len(h.heads) - 1; i >= 0; i-- {
		if !h.heads[i].time.After(t) {
			return h.heads[i].at
		}
	}
	return fence.Position{}
}

// Empty calls flush, which empties the store of views. Views may regress over it: a rebuild that was under way may be
// stored after it.
func (w *World) Empty(flush func()) {
	w.emptied.Add(1)
	defer w.emptied.Add(1)
	flush()
}

// given is the newest version that a reader was given, and how often the store had been emptied when its read began.
type given struct {
	at      fence.Position
	emptied int64
}

// Reading is the read of one view, of which is known how far the view has to reach.
type Reading struct {
	world   *World
	tile    fence.TileID
	began   time.Time
	within  time.Duration
	emptied int64
	head    fence.Position
	given   given
}

// Begin begins a read of View without a position that it needs. Its Audit also finds a view that is empty, that lacks
// what was committed longer than within before Begin, or that is older than one which any reader was given before
// Begin.
//
// viewcache.Cache answers from a version that was stored or confirmed Config.Fresh ago at most, with what the log had
// when its rebuild read it. So within is Config.Fresh and the time of a rebuild: RebuildLimit at most, and milliseconds
// where nothing hangs. A view that is Stale has RebuildLimit more. It is the newest version there is, its readers do
// not wait, and the rebuild that is under way, of a tile that is read all the time, began when it was no longer fresh.
//
// All readers must share one store that works: a view that could not be stored may be followed by an older one.
func (w *World) Begin(tile fence.TileID, within time.Duration) Reading {
	r := Reading{world: w, tile: tile, within: within, emptied: w.emptied.Load()}
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	r.began, r.head, r.given = time.Now(), h.at, h.given
	return r
}

// Audit says what is wrong with the view that was read.
func (r *Reading) Audit(v *viewcache.View) error {
	h := r.world.of(r.tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.audit(r.tile, v); err != nil {
		return err
	}
	within := r.within
	if v.Stale {
		within += RebuildLimit
	}
	must, emptied := h.headAt(r.began.Add(-within)), r.world.emptied.Load()
	switch {
	case v.Position.IsZero() && !r.head.IsZero():
		return wrong(r.tile, v, "it is empty, and the history ended at %s", r.head)
	case earlier(v.Position, must):
		return wrong(r.tile, v, "it lacks %s, committed more than %s before", must, within)
	case earlier(v.Position, r.given.at) && emptied == r.given.emptied && emptied%2 == 0:
		return wrong(r.tile, v, "it regresses: a reader was given %s", r.given.at)
	}
	if n := (given{v.Position, r.emptied}); n.emptied > h.given.emptied ||
		n.emptied == h.given.emptied && earlier(h.given.at, n.at) {
		h.given = n
	}
	return nil
}

// earlier reports whether p is before q in a history: epochs first.
func earlier(p, q fence.Position) bool {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Seq, q.Seq)) < 0
}
