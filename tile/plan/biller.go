package plan

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// Biller moves usage events from the store to billing's own store. It is independent of desks and workers, which never
// wait for it: while it is away, events gather in the store (some 250 bytes each on Redis).
//
// An event is removed from the store after the sink has it. A crash in between, or a second Biller, gives events to the
// sink again; a sink that is idempotent by UsageEvent.Request has each request's usage exactly once.
//
// An event that the sink refuses is distinguished from a sink that is away: it fails alone, and the latest one does
// not. It is logged, tried again once a second, and stays in the store until the sink takes it, with the events behind
// it; those are given to the sink all the same, up to 10,000 of a shard.
type Biller struct {
	store Store
	sink  Sink
	log   *slog.Logger
	batch int // events given to the sink at once, at most
	ran   atomic.Bool
}

const (
	billEvery = time.Second // between two looks at a shard that had no more events
	billBatch = 500         // events of one call of the sink: one statement of billing's store
)

// NewBiller returns a biller. It does no I/O. The logger receives failures; nil means slog.Default(). A
// *fence.ArgumentError names what is missing.
func NewBiller(store Store, sink Sink, log *slog.Logger) (*Biller, error) {
	if err := checkStore(store); err != nil {
		return nil, err
	}
	if sink == nil {
		return nil, &fence.ArgumentError{Field: "sink", Value: "nil", Want: "where usage events go"}
	}
	return &Biller{store: store, sink: sink, log: cmp.Or(log, slog.Default()), batch: billBatch}, nil
}

// Run moves events until ctx ends, and returns nil. No failure ends it: it tries again after a second. The other error
// is fence.ErrAlreadyRun.
func (b *Biller) Run(ctx context.Context) error {
	if b.ran.Swap(true) {
		return fmt.Errorf("plan: biller: %w", fence.ErrAlreadyRun)
	}
	var loops sync.WaitGroup
	for shard := range b.store.Shards() {
		loops.Go(func() {
			for m := (&mover{Biller: b, shard: shard, size: b.batch}); ctx.Err() == nil; {
				moved, err := m.move(ctx)
				if err != nil && ctx.Err() == nil {
					b.log.Warn("plan: usage events not moved, trying again", "shard", shard, "error", err)
				}
				if !moved || err != nil {
					wait.For(ctx, billEvery)
				}
			}
		})
	}
	loops.Wait()
	return nil
}

// mostEvents is how many events one read of the store returns at most.
const mostEvents = 10_000

// mover moves the events of one shard. The store removes them in order, so those that the sink has are remembered while
// one before them is refused: an event that the sink cannot take does not hold up the rest.
type mover struct {
	*Biller
	shard   int
	after   string          // the sink has all up to this one
	has     map[string]bool // positions after it that the sink has
	refused []string        // positions that the sink refused alone while it took another one
	size    int             // of the next batch: half of one that failed
}

// move removes the events that the sink has, and gives it the next ones. It reports whether the sink took any.
func (m *mover) move(ctx context.Context) (moved bool, err error) {
	limit := min(m.batch+len(m.has)+len(m.refused), mostEvents)
	events, err := m.store.Usage(ctx, m.shard, m.after, limit)
	if err != nil || len(events) == 0 {
		return false, err
	}
	var fresh, again []UsageEvent
	for _, e := range events {
		switch {
		case m.has[e.Position]:
		case slices.Contains(m.refused, e.Position):
			again = append(again, e)
		default:
			fresh = append(fresh, e)
		}
	}
	moved, err = m.give(ctx, fresh)
	if len(again) > 0 && err == nil {
		err = m.retry(ctx, again, len(fresh) == 0 && limit == mostEvents)
	}
	for _, e := range events {
		if !m.has[e.Position] {
			break
		}
		m.after = e.Position
		delete(m.has, e.Position)
	}
	return moved, err
}

// give gives the sink the first of some events. One that it refuses alone, while it takes the last one, is set aside.
func (m *mover) give(ctx context.Context, fresh []UsageEvent) (moved bool, err error) {
	if len(fresh) == 0 {
		return false, nil
	}
	batch := fresh[:min(m.size, len(fresh))]
	if err = m.record(ctx, batch); err == nil {
		m.size = min(2*m.size, m.batch)
		return true, nil
	}
	m.size = max(1, len(batch)/2)
	if len(batch) > 1 || len(fresh) == 1 {
		return false, err
	}
	if other := m.record(ctx, fresh[len(fresh)-1:]); other != nil {
		return false, err // the sink is away
	}
	m.refused = append(m.refused, batch[0].Position)
	m.log.Error("plan: billing's sink refuses a usage event, which is tried again beside the others",
		"shard", m.shard, "request", batch[0].Request, "error", err)
	return true, nil
}

// retry gives the sink one of those that it has refused, each in its turn.
func (m *mover) retry(ctx context.Context, again []UsageEvent, full bool) error {
	err := m.record(ctx, again[:1])
	m.refused = slices.DeleteFunc(m.refused, func(p string) bool { return p == again[0].Position })
	switch {
	case err == nil:
		return nil
	case full:
		err = fmt.Errorf("%d events wait behind %d that the sink refuses: %w", mostEvents, len(again), err)
	default:
		err = fmt.Errorf("%d events are refused, such as that of request %s: %w", len(again), again[0].Request, err)
	}
	m.refused = append(m.refused, again[0].Position)
	return err
}

func (m *mover) record(ctx context.Context, events []UsageEvent) error {
	if err := m.sink.Record(ctx, events); err != nil {
		return fmt.Errorf("the sink: %w", err)
	}
	if m.has == nil {
		m.has = map[string]bool{}
	}
	for _, e := range events {
		m.has[e.Position] = true
	}
	return nil
}
