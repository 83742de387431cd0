package bridge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

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
	wanted map[fence.TileID]*want  // the tiles to forward
	woken  []*want                 // of these, the ones Wake was called for since Run looked
	hints  [fanout.HintGroups]bool // of which groups hints arrive
	lapsed [fanout.HintGroups]bool // of which they did not for a while since Run looked
	edited bool                    // wanted has changed since Run looked
	turned bool                    // hints has changed since Run looked
	stats  Stats
	oldest time.Time // commit of the oldest entry that is known to wait; zero: none does
}

// want is a tile that is to be forwarded.
type want struct {
	id    fence.TileID
	woken bool  // is in Bridge.woken
	tile  *tile // Run's; nil while it does not know of it
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
		wanted: map[fence.TileID]*want{}}
	if err := b.Add(tiles...); err != nil {
		return nil, err
	}
	return b, nil
}

// Run forwards until ctx ends, then finishes the passes under way, writes the watermarks, and returns nil,
// all within Config.DrainTimeout if log and publisher obey their contexts. All its goroutines have ended
// when it returns. It may be called again afterwards. The only errors are ErrRunning and, at once, that of
// Config.Hints if it refuses a subscription.
func (b *Bridge) Run(ctx context.Context) error {
	if !b.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer b.running.Store(false)
	unsubscribe, err := b.subscribe()
	if err != nil {
		return err
	}
	defer unsubscribe()
	b.mu.Lock()
	b.edited, b.turned = true, true
	for _, w := range b.wanted {
		w.tile = nil
	}
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
		if b.wanted[t] == nil {
			b.wanted[t] = &want{id: t}
		}
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
	}
	b.edited = true
	b.stats.Tiles = len(b.wanted)
	b.mu.Unlock()
	b.signal()
}

// Stats returns the counters, all of one moment.
func (b *Bridge) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	if !b.oldest.IsZero() {
		s.Lag = max(0, time.Since(b.oldest))
	}
	return s
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
