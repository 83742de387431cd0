package plan

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
)

// Biller moves usage events from the store to billing's own store. It is independent of desks and workers, which never
// wait for it: while it is away, events gather in the store (some 250 bytes each on Redis).
//
// An event is removed from the store after the sink has it. A crash in between, or a second Biller, gives events to the
// sink again; a sink that is idempotent by UsageEvent.Request has each request's usage exactly once.
type Biller struct {
	store Store
	sink  Sink
	cfg   BillerConfig
	ran   atomic.Bool
}

// BillerConfig holds the optional settings of a Biller. A zero field means its default; none may be negative.
type BillerConfig struct {
	Every  time.Duration // between two looks at a shard that had no more events. Default 1 s
	Batch  int           // events given to the sink at once, at most. Default 500
	Logger *slog.Logger  // receives failures. Nil means slog.Default()
}

// NewBiller returns a biller. It does no I/O. A nil cfg means the defaults. A *fence.ArgumentError names what is
// missing or out of range.
func NewBiller(store Store, sink Sink, cfg *BillerConfig) (*Biller, error) {
	if err := checkStore(store); err != nil {
		return nil, err
	}
	c := setting.Of(cfg)
	c.Batch, c.Logger = cmp.Or(c.Batch, 500), cmp.Or(c.Logger, slog.Default())
	var s setting.Check
	s.Refuse(sink == nil, "sink", "nil", "where usage events go")
	s.Duration("Every", &c.Every, time.Second)
	s.Refuse(c.Batch < 1 || c.Batch > 10000, "Batch", c.Batch, "1 to 10000, or zero for the default")
	if s.Err != nil {
		return nil, s.Err
	}
	return &Biller{store: store, sink: sink, cfg: c}, nil
}

// Run moves events until ctx ends, and returns nil. No failure ends it: it tries again after Every. The other error is
// fence.ErrAlreadyRun.
func (b *Biller) Run(ctx context.Context) error {
	if b.ran.Swap(true) {
		return fmt.Errorf("plan: biller: %w", fence.ErrAlreadyRun)
	}
	var loops sync.WaitGroup
	for shard := range b.store.Shards() {
		loops.Go(func() {
			for after := ""; ctx.Err() == nil; {
				next, err := b.move(ctx, shard, after)
				if err != nil && ctx.Err() == nil {
					b.cfg.Logger.Warn("plan: usage events not moved, trying again", "shard", shard, "error", err)
				}
				if idle := next == after; idle || err != nil {
					wait.For(ctx, b.cfg.Every)
				}
				after = next
			}
		})
	}
	loops.Wait()
	return nil
}

// move removes the events up to after, which the sink has, and gives it the next ones. It returns the last one that it
// took.
func (b *Biller) move(ctx context.Context, shard int, after string) (last string, err error) {
	events, err := b.store.Usage(ctx, shard, after, b.cfg.Batch)
	if err != nil || len(events) == 0 {
		return after, err
	}
	if err := b.sink.Record(ctx, events); err != nil {
		return after, fmt.Errorf("the sink: %w", err)
	}
	return events[len(events)-1].Position, nil
}
