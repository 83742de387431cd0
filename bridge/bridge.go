package bridge

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Bridge forwards the committed batches of a changing set of tiles.
type Bridge struct {
	clusters clusters
	hints    fanout.HintSubscriber // nil: none
	report   reporter
	inbox    inbox
	ran      atomic.Bool
}

// New returns a Bridge from log to pub for the given tiles, to which Add and Remove may bring changes at
// any time. Run subscribes to the wake hints of hints, usually the publisher; nil means that there are none, or that
// the caller has another source, see Bridge.Wake and Bridge.Hints. It does no I/O. A nil cfg means all defaults. A
// *fence.ArgumentError names what is missing or out of range.
func New(
	log stream.Log, pub fanout.Publisher, hints fanout.HintSubscriber, tiles []fence.TileID, cfg *Config,
) (*Bridge, error) {
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
	b := &Bridge{clusters: clusters{log: log, pub: pub, cfg: c}, hints: hints, report: reporter{cfg: c},
		inbox: inbox{changed: make(chan struct{}, 1), wanted: map[fence.TileID]*want{}}}
	if err := b.Add(tiles...); err != nil {
		return nil, err
	}
	return b, nil
}

// Run forwards until ctx ends, then finishes the passes under way, writes the watermarks, and returns nil,
// all within Config.DrainTimeout if log and publisher obey their contexts. All its goroutines have ended
// when it returns. The other errors are fence.ErrAlreadyRun, and that of the hints if it refuses a subscription.
func (b *Bridge) Run(ctx context.Context) error {
	if b.ran.Swap(true) {
		return fmt.Errorf("bridge: %w", fence.ErrAlreadyRun)
	}
	if b.hints != nil {
		for group := range fanout.HintGroups {
			stop, err := b.hints.SubscribeHints(group, b.inbox.wake,
				func(up bool) { b.inbox.setHints(group, up) })
			if err != nil {
				return err
			}
			defer stop()
		}
	}
	newRun(&b.clusters, &b.inbox, newWorld(b.clusters.cfg, &b.report)).loop(ctx)
	return nil
}

// Add begins to forward tiles; those it forwards already are no error. A *fence.ArgumentError if one is
// zero; none is added then.
func (b *Bridge) Add(tiles ...fence.TileID) error {
	for _, t := range tiles {
		if err := guard.Tile(t); err != nil {
			return err
		}
	}
	b.inbox.add(tiles)
	return nil
}

// Remove ceases to forward tiles. It does not wait: a pass under way may still publish, and the last
// watermarks are written after it. Another bridge that begins before they are publishes up to
// Config.MarkEvery's worth again. The marks stay until their lease runs out.
func (b *Bridge) Remove(tiles ...fence.TileID) { b.inbox.remove(tiles) }

// Wake says that tiles have, or may have, new entries: they are read in the next pass, which begins at
// once or, while passes follow one another, a few milliseconds later. It is a hint; a lost one costs the
// time to the tile's next poll. It does not shorten the wait of a tile that failed. Tiles the bridge does not
// forward are ignored. It costs a map lookup a tile.
func (b *Bridge) Wake(tiles ...fence.TileID) { b.inbox.wake(tiles) }

// Hints says whether Wake is going to be called for what is committed from now on: if so, quiet tiles are
// polled every Config.HintedPoll only. It is for a source of hints of the caller's own, one that has no
// fanout.HintSubscriber. Initially it is not.
func (b *Bridge) Hints(up bool) {
	for group := range fanout.HintGroups {
		b.inbox.setHints(group, up)
	}
}

// Stats returns the counters.
func (b *Bridge) Stats() Stats {
	s := b.report.snapshot()
	s.Tiles = b.inbox.count()
	return s
}
