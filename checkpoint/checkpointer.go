package checkpoint

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/schedule"
	"github.com/tilefence/tilefence/stream"
)

// Checkpointer copies the snapshots of a changing set of tiles to a Store. See the package comment for
// what it guarantees. Its methods are safe for concurrent use.
type Checkpointer struct {
	log     stream.Log
	store   Store
	journal JournalStore // nil: there is none
	cfg     Config

	inspector stream.Inspector // the log, if it is one; see survey

	mu      sync.Mutex // guards the rest, and the scheduling of each tile
	tiles   map[fence.TileID]*tileState
	waiting *lane // tiles whose last attempt did not fail, until it is time to look at them
	changed *lane // those of which a look has shown that an attempt is due
	failing *lane // tiles whose last attempt failed
	counts  counts
	running bool
}

// tileState is what a Checkpointer remembers of a tile.
type tileState struct {
	id fence.TileID

	// busy holds a token while one goroutine works on the tile: it alone may touch the next block.
	busy     chan struct{}
	floor    fence.Epoch    // highest epoch a snapshot was seen under
	durable  fence.Position // in the store, as far as this process knows; zero: it does not know
	marked   fence.Seq      // last watermark written
	renewed  time.Time      // when
	failures int            // attempts failed in a row

	expiring fence.Position // where the tile was when it was given a time to live
	gone     bool           // it has expired since
	rest     rest

	truncated  fence.Seq // up to where the journal was truncated
	truncating int       // failures in a row to truncate it

	// Written by the holder of the token under Checkpointer.mu; so the holder may read them without it.
	current time.Time // when the store was last known to hold the latest snapshot
	behind  bool      // the last attempt did not make it so

	// Guarded by Checkpointer.mu.
	removed bool
	due     schedule.Date[*tileState] // in the queue of a lane; in none while a lane's slot works on it
}

// New returns a Checkpointer for the given tiles; Add and Remove change them later. journal is where write-through
// tiles keep the batches that no checkpoint covers; nil: there is none. When a tile's snapshot is durable, its journal
// is truncated up to it. If that fails, it is logged, counted and repeated later; it is no failed checkpoint. Nothing
// happens before Run or CheckpointNow. A *fence.ArgumentError names a missing log or store, a zero tile, or an option
// out of range.
func New(
	log stream.Log, store Store, journal JournalStore, tiles []fence.TileID, cfg *Config,
) (*Checkpointer, error) {
	if log == nil {
		return nil, &fence.ArgumentError{Field: "log", Value: nil, Want: "the coordination store's log"}
	}
	if store == nil {
		return nil, &fence.ArgumentError{Field: "store", Value: nil, Want: "a durable store"}
	}
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Checkpointer{log: log, store: store, journal: journal, cfg: full, tiles: map[fence.TileID]*tileState{},
		waiting: newLane(), changed: newLane(), failing: newLane()}
	c.inspector, _ = log.(stream.Inspector)
	if err := c.Add(tiles...); err != nil {
		return nil, err
	}
	return c, nil
}

// Add puts tiles under care; the first attempt of each is within one cadence. Adding a tile twice is no error. A
// *fence.ArgumentError if a tile is zero; none is added then.
func (c *Checkpointer) Add(tiles ...fence.TileID) error {
	for _, tile := range tiles {
		if err := guard.Tile(tile); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tile := range tiles {
		if c.tiles[tile] != nil {
			continue
		}
		t := &tileState{id: tile, busy: make(chan struct{}, 1), current: time.Now()}
		t.due.Of = t
		c.tiles[tile] = t
		c.waiting.put(t, time.Now().Add(c.spread(t)))
	}
	return nil
}

// Remove takes tiles out of care and forgets all about them, their epoch floors included. An attempt under
// way finishes; there is no last one, for which call CheckpointNow first. Watermarks are left to
// expire. Removing an unknown tile does nothing.
func (c *Checkpointer) Remove(tiles ...fence.TileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tile := range tiles {
		if t := c.tiles[tile]; t != nil {
			t.removed = true
			t.due.Clear()
			delete(c.tiles, tile)
		}
	}
}

// CheckpointNow makes a tile's latest snapshot durable now, whether Run is going on or not, waiting for
// an attempt under way. It makes one attempt, bounded by ctx and Config.Timeout, outside the limit on
// concurrency, and reports it to the hooks as Run does.
//
// A nil error means that the store holds the tile's latest snapshot and the watermark says so. Errors: a
// *fence.ArgumentError for a tile that was not added; ErrNoSnapshot; ErrUnserved; a *fence.CorruptError, *FloorError
// or *OlderError for a snapshot that must not be written (see SkippedInfo); otherwise what the store or
// the log answered, and the tile is retried by Run.
func (c *Checkpointer) CheckpointNow(ctx context.Context, tile fence.TileID) error {
	c.mu.Lock()
	t := c.tiles[tile]
	c.mu.Unlock()
	if t == nil {
		return &fence.ArgumentError{Field: "tile", Value: tile, Want: "a tile of this checkpointer, see Add"}
	}
	select {
	case t.busy <- struct{}{}:
	case <-ctx.Done():
		return &fence.StoreError{Op: "checkpoint", Tile: tile, Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	return c.attempt(ctx, t)
}

// Run keeps the tiles' checkpoints up to date until ctx is cancelled. Then it lets the attempts under
// way finish and makes one last attempt at every tile, all within Config.Drain, and returns nil; the
// Drained hook says whether every tile made it. fence.ErrAlreadyRun is its only error, while another Run of the same
// Checkpointer has not ended.
func (c *Checkpointer) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return fmt.Errorf("checkpointer: %w", fence.ErrAlreadyRun)
	}
	c.running = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
	}()

	// Attempts outlive ctx, so that one which has uploaded most of a snapshot is not thrown away.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var lanes sync.WaitGroup
	lanes.Go(func() { c.serve(ctx, c.waiting, looks, func(tiles []*tileState) { c.look(work, tiles) }) })
	for _, l := range []*lane{c.changed, c.failing} {
		lanes.Go(func() {
			c.serve(ctx, l, attempts(c.cfg.Concurrency), func(tiles []*tileState) { c.visit(work, tiles[0]) })
		})
	}
	<-ctx.Done()
	begin := time.Now()
	defer time.AfterFunc(c.cfg.Drain, cancel).Stop()
	lanes.Wait()
	c.drain(work, begin)
	return nil
}

// drain makes one last attempt at every tile until ctx, which ends with Config.Drain, is done. Failing tiles
// stay apart, so that those whose writes hang do not use up the time of the others.
func (c *Checkpointer) drain(ctx context.Context, begin time.Time) {
	c.mu.Lock()
	total := len(c.tiles)
	tiles, failing := append(c.waiting.queue.All(), c.changed.queue.All()...), c.failing.queue.All()
	c.mu.Unlock()

	var lanes sync.WaitGroup
	var behind atomic.Int64
	last := func(t *tileState) {
		if !c.finish(ctx, t) {
			behind.Add(1)
		}
	}
	lanes.Go(func() { c.each(slices.Values(failing), last) })
	lanes.Go(func() { c.each(c.remaining(ctx, tiles, &behind), last) })
	lanes.Wait()
	info := DrainedInfo{Tiles: total, Behind: int(behind.Load()), Took: time.Since(begin)}
	c.cfg.Logger.Info("checkpointer drained", "tiles", info.Tiles, "behind", info.Behind, "took", info.Took)
	hook.Call(c.cfg.Hooks.Drained, info)
}

// remaining goes through the tiles that need a last attempt, those whose head could not be read after all others.
// Those that a survey cannot read, or that there is no time to ask about, it adds to behind.
func (c *Checkpointer) remaining(ctx context.Context, tiles []*tileState, behind *atomic.Int64) iter.Seq[*tileState] {
	return func(yield func(*tileState) bool) {
		var later []*tileState
		for some := range slices.Chunk(tiles, looks.tiles) {
			if ctx.Err() != nil {
				behind.Add(int64(len(some)))
				continue
			}
			held, busy := take(some)
			changed, unread, failed := c.survey(ctx, held)
			behind.Add(int64(failed))
			for _, t := range slices.Concat(changed, unread) {
				<-t.busy
			}
			later = append(later, unread...)
			for _, t := range slices.Concat(changed, busy) {
				if !yield(t) {
					return
				}
			}
		}
		for _, t := range later {
			if !yield(t) {
				return
			}
		}
	}
}

// each calls f for every tile, Config.Concurrency at a time.
func (c *Checkpointer) each(tiles iter.Seq[*tileState], f func(*tileState)) {
	next := make(chan *tileState)
	var workers sync.WaitGroup
	for range c.cfg.Concurrency {
		workers.Go(func() {
			for t := range next {
				f(t)
			}
		})
	}
	for t := range tiles {
		next <- t
	}
	close(next)
	workers.Wait()
}
