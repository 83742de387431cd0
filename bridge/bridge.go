package bridge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// ErrRunning is returned by Run while another Run of the same Bridge has not returned.
var ErrRunning = errors.New("the bridge is already running")

// Bridge forwards the committed batches of a changing set of tiles.
type Bridge struct {
	log stream.Log
	pub fanout.Publisher
	cfg Config

	running atomic.Bool
	changed chan struct{} // tells Run of a change of the following

	mu     sync.Mutex
	wanted map[fence.TileID]bool // the tiles to forward
	woken  map[fence.TileID]bool // of these, the ones Wake was called for
	edited bool                  // wanted has changed since Run looked
	stats  Stats
}

// New returns a Bridge from log to pub for the given tiles, to which Add and Remove may bring changes at
// any time. It does no I/O. A nil cfg means all defaults. A *fence.ArgumentError names what is missing or
// out of range.
func New(log stream.Log, pub fanout.Publisher, tiles []fence.TileID, cfg *Config) (*Bridge, error) {
	if log == nil {
		return nil, &fence.ArgumentError{Field: "log", Value: "nil", Want: "a stream.Log"}
	}
	if pub == nil {
		return nil, &fence.ArgumentError{Field: "pub", Value: "nil", Want: "a fanout.Publisher"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bridge{log: log, pub: pub, cfg: c, changed: make(chan struct{}, 1),
		wanted: map[fence.TileID]bool{}, woken: map[fence.TileID]bool{}}
	if err := b.Add(tiles...); err != nil {
		return nil, err
	}
	return b, nil
}

// Run forwards until ctx ends, then finishes the pass under way, writes the watermarks, and returns nil,
// all within Config.DrainTimeout if log and publisher obey their contexts. All its goroutines have ended
// when it returns. It may be called again afterwards. The only error is ErrRunning.
func (b *Bridge) Run(ctx context.Context) error {
	if !b.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer b.running.Store(false)
	b.mu.Lock()
	b.edited = true
	b.mu.Unlock()
	newRun(b).loop(ctx)
	return nil
}

// Add begins to forward tiles; those it forwards already are no error. A *fence.ArgumentError if one is
// zero; none is added then.
func (b *Bridge) Add(tiles ...fence.TileID) error {
	for _, t := range tiles {
		if t == 0 {
			return &fence.ArgumentError{Field: "tile", Value: t, Want: "an H3 index, not zero"}
		}
	}
	b.mu.Lock()
	for _, t := range tiles {
		b.wanted[t] = true
	}
	b.edited = true
	b.stats.Tiles = len(b.wanted)
	b.mu.Unlock()
	b.signal()
	return nil
}

// Remove ceases to forward tiles. It does not wait: a pass under way may still publish, and the last
// watermarks are written after it. Another bridge that begins before they are publishes up to
// Config.MarkEvery's worth again. The marks stay until their lease runs out.
func (b *Bridge) Remove(tiles ...fence.TileID) {
	b.mu.Lock()
	for _, t := range tiles {
		delete(b.wanted, t)
		delete(b.woken, t)
	}
	b.edited = true
	b.stats.Tiles = len(b.wanted)
	b.mu.Unlock()
	b.signal()
}

// Wake says that tiles have, or may have, new entries: they are read in the next pass, which begins at
// once. It is a hint; a lost one costs the time to the tile's next poll. It does not shorten the wait of
// a tile that failed. Tiles the bridge does not forward are ignored.
func (b *Bridge) Wake(tiles ...fence.TileID) {
	b.mu.Lock()
	for _, t := range tiles {
		if b.wanted[t] {
			b.woken[t] = true
		}
	}
	b.mu.Unlock()
	b.signal()
}

// Stats returns the counters, all of one moment.
func (b *Bridge) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

func (b *Bridge) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// count changes the statistics.
func (b *Bridge) count(f func(*Stats)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.stats)
}
