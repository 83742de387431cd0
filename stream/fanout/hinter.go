package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// Hinter is the sending side of wake hints in a process that commits: it collects the tiles that Hint is
// called for and publishes them together.
//
//	hinter, err := fanout.NewHinter(publisher, nil)
//	go func() { errs <- hinter.Run(ctx) }()
//	cfg.Hooks.Committed = func(i tile.CommitInfo) { hinter.Hint(i.Tile) }
//
// It delays no commit: Hint neither waits nor does I/O, one publish at most is under way, and the tiles
// that wait for it are a bounded set. A group of tiles whose publish failed is left alone for a second, its hints
// being dropped, so that a node that hangs delays those of the others by 100 ms a second at most.
// All methods are safe for concurrent use.
type Hinter struct {
	pub HintPublisher
	log *slog.Logger

	ran     atomic.Bool
	wake    chan struct{} // signals Run that there is something to flush
	waiting atomic.Int64  // tiles in all sets
	groups  [HintGroups]hintGroup

	sent, failed, flushes atomic.Uint64

	tuning tuning
}

// hintGroup is the tiles of one group that wait for the next flush. Each has a lock of its own: Hint is
// called from the tick loops of thousands of tiles.
type hintGroup struct {
	mu    sync.Mutex
	tiles map[fence.TileID]struct{}
	list  []fence.TileID // the same: a map that was once large is slow to walk

	hinted, coalesced, dropped uint64

	paused time.Time // used by Run only: until then the group's hints are dropped
}

// hintPause is how long a group whose publish failed is left alone.
const hintPause = time.Second

// tuning holds what only tests change.
type tuning struct {
	Timeout time.Duration // of one publish

	// Every is the shortest time between two flushes, and so about the longest a hint waits while
	// publishing is quick.
	Every time.Duration

	// MaxTiles is how many tiles wait for a flush at most; hints for more are dropped.
	MaxTiles int
}

// HinterStats is what a Hinter has done since it was made.
type HinterStats struct {
	Hinted    uint64 // calls of Hint
	Coalesced uint64 // of these, for a tile that was waiting already
	Dropped   uint64 // of these, for which there was no room, or whose group was paused
	Sent      uint64 // hints handed over
	Failed    uint64 // hints that were published and not handed over for sure
	Flushes   uint64 // publishes
	Waiting   int    // tiles that wait now
}

// NewHinter returns a Hinter that sends through pub. It does no I/O. The logger receives failures, one line a failed
// publish; nil discards. A *fence.ArgumentError says that pub is missing.
func NewHinter(pub HintPublisher, log *slog.Logger) (*Hinter, error) {
	if pub == nil {
		return nil, &fence.ArgumentError{Field: "pub", Value: "nil", Want: "a fanout.HintPublisher"}
	}
	h := &Hinter{pub: pub, log: cmp.Or(log, slog.New(slog.DiscardHandler)), wake: make(chan struct{}, 1),
		tuning: tuning{Timeout: 100 * time.Millisecond, Every: time.Millisecond, MaxTiles: 1 << 16}}
	for i := range h.groups {
		h.groups[i].tiles = map[fence.TileID]struct{}{}
	}
	return h, nil
}

// Hint notes that the tile has new entries; Run publishes it. It costs about as much as a map
// assignment. What is hinted while Run does not run waits for it, as far as there is room. A zero tile is
// ignored.
func (h *Hinter) Hint(tile fence.TileID) {
	if tile == 0 {
		return
	}
	g := &h.groups[HintGroupOf(tile)]
	g.mu.Lock()
	g.hinted++
	if _, waits := g.tiles[tile]; waits {
		g.coalesced++
		g.mu.Unlock()
		return
	}
	if h.waiting.Add(1) > int64(h.tuning.MaxTiles) {
		h.waiting.Add(-1)
		g.dropped++
		g.mu.Unlock()
		return
	}
	g.tiles[tile] = struct{}{}
	g.list = append(g.list, tile)
	g.mu.Unlock()
	wait.Wake(h.wake)
}

// Run publishes what is hinted until ctx ends, then once more what still waits, and returns nil, within
// 100 ms. The only error is fence.ErrAlreadyRun.
func (h *Hinter) Run(ctx context.Context) error {
	if h.ran.Swap(true) {
		return fmt.Errorf("hinter: %w", fence.ErrAlreadyRun)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var tiles []fence.TileID
	for {
		select { // not sooner than Every after the last flush
		case <-ctx.Done():
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
		case <-h.wake:
		}
		last := ctx.Err() != nil
		tiles = h.flush(context.WithoutCancel(ctx), tiles[:0])
		if last {
			return nil
		}
		timer.Reset(h.tuning.Every)
	}
}

// flush publishes what waits. It returns tiles, grown, to be used again.
func (h *Hinter) flush(ctx context.Context, tiles []fence.TileID) []fence.TileID {
	tiles = h.take(tiles, time.Now())
	if len(tiles) == 0 {
		return tiles
	}
	ctx, cancel := context.WithTimeout(ctx, h.tuning.Timeout)
	err := h.pub.PublishHints(ctx, tiles)
	cancel()
	h.flushes.Add(1)
	if err == nil {
		h.sent.Add(uint64(len(tiles)))
		return tiles
	}
	partial, knows := errors.AsType[*PublishError](err)
	until, failed := time.Now().Add(hintPause), 0
	for i, tile := range tiles {
		if knows && partial.Handed[i] {
			continue
		}
		failed++
		h.groups[HintGroupOf(tile)].paused = until
	}
	h.failed.Add(uint64(failed))
	h.sent.Add(uint64(len(tiles) - failed))
	h.log.Warn("wake hints not published; readers poll", "hints", failed, "error", err)
	return tiles
}

// take empties the sets into tiles, but for the paused ones, which it drops.
func (h *Hinter) take(tiles []fence.TileID, now time.Time) []fence.TileID {
	for i := range h.groups {
		g := &h.groups[i]
		g.mu.Lock()
		n := len(g.list)
		if now.Before(g.paused) {
			g.dropped += uint64(n)
		} else {
			tiles = append(tiles, g.list...)
		}
		g.list = g.list[:0]
		clear(g.tiles)
		g.mu.Unlock()
		h.waiting.Add(-int64(n))
	}
	return tiles
}

// Stats returns the counters. They are read one after another: a hint under way may be in some only.
func (h *Hinter) Stats() HinterStats {
	s := HinterStats{Sent: h.sent.Load(), Failed: h.failed.Load(), Flushes: h.flushes.Load(),
		Waiting: int(h.waiting.Load())}
	for i := range h.groups {
		g := &h.groups[i]
		g.mu.Lock()
		s.Hinted += g.hinted
		s.Coalesced += g.coalesced
		s.Dropped += g.dropped
		g.mu.Unlock()
	}
	return s
}
