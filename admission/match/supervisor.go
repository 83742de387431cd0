package match

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
)

// reclaimLimit is the most tickets, and matches, that one call of Store.Reclaim returns.
const reclaimLimit = 500

// SupervisorConfig holds the optional settings of a Supervisor. A zero field means its default.
type SupervisorConfig struct {
	// Period between two looks at a shard. Default 5 s. Tickets time out, and lapsed seats return, with this delay.
	Period time.Duration
	Hooks  Hooks
	Logger *slog.Logger // receives what was reclaimed, and failures. Nil discards.
}

// Supervisor returns what was left behind: the claims of workers whose lease ended, matches that were recorded and
// not finished, seats that were not taken, tickets past their deadline. Run several, in different processes: each
// step is idempotent, and they need not know each other.
type Supervisor struct {
	finisher
	shards []string
	period time.Duration
	ran    atomic.Bool
}

// NewSupervisor returns a supervisor of these queues. It does no I/O. Errors: a *fence.ArgumentError.
func NewSupervisor(store Store, alloc Allocator, queues []Queue, cfg *SupervisorConfig) (*Supervisor, error) {
	c := setting.Of(cfg)
	var check setting.Check
	check.Duration("Period", &c.Period, 5*time.Second)
	if check.Err != nil {
		return nil, check.Err
	}
	f, shards, err := open(store, alloc, queues, c.Hooks, c.Logger)
	if err != nil {
		return nil, err
	}
	return &Supervisor{finisher: f, shards: shards, period: c.Period}, nil
}

// open checks what workers and supervisors have in common.
func open(
	store Store, alloc Allocator, queues []Queue, h Hooks, log *slog.Logger,
) (f finisher, shards []string, err error) {
	byName, err := checkQueues(queues)
	switch {
	case store == nil:
		err = &fence.ArgumentError{Field: "store", Value: nil, Want: "a back end, such as memmatch.New()"}
	case alloc == nil:
		err = &fence.ArgumentError{Field: "alloc", Value: nil, Want: "an Allocator, such as a SeatAllocator"}
	}
	if err != nil {
		return finisher{}, nil, err
	}
	for _, q := range byName {
		shards = append(shards, q.shards()...)
	}
	slices.Sort(shards)
	return finisher{store, alloc, h, cmp.Or(log, slog.New(slog.DiscardHandler))}, shards, nil
}

// Run looks at every shard once in each period, until ctx ends, and returns nil. It runs once: a second call
// returns fence.ErrAlreadyRun.
func (s *Supervisor) Run(ctx context.Context) error {
	if !s.ran.CompareAndSwap(false, true) {
		return fence.ErrAlreadyRun
	}
	for {
		s.Once(ctx)
		if !wait.For(ctx, s.period) {
			return nil
		}
	}
}

// Once looks at every shard once. Failures are logged and reported to Hooks.Failed.
func (s *Supervisor) Once(ctx context.Context) {
	lapsed := s.requeue(ctx)
	var g errgroup.Group
	g.SetLimit(8)
	for _, shard := range s.shards {
		g.Go(func() error {
			s.look(ctx, shard, lapsed[shard])
			return nil
		})
	}
	_ = g.Wait()
}

// look reclaims one shard until nothing is left to reclaim.
func (s *Supervisor) look(ctx context.Context, shard string, lapsed int) {
	began, info := time.Now(), ReclaimInfo{Shard: shard, Lapsed: lapsed}
	for more := true; more && ctx.Err() == nil; {
		r, err := s.store.Reclaim(ctx, shard, reclaimLimit)
		if err != nil {
			s.failed(shard, "reclaim", err)
			return
		}
		info.Returned += len(r.Returned)
		info.TimedOut += len(r.TimedOut)
		info.Pending += len(r.Pending)
		if len(r.Pending) > 0 {
			left := s.once(ctx, shard, r.Pending, func() {}) // what fails is found again in the next period
			more = r.More && len(left) == 0
			continue
		}
		more = r.More
	}
	info.Took = time.Since(began)
	hook.Call(s.hooks.Reclaimed, info)
	if info.Returned+info.Pending > 0 {
		s.log.Warn("match: a worker is gone; its tickets wait again and its matches were finished", "shard", shard,
			"tickets", info.Returned, "matches", info.Pending)
	}
	if info.TimedOut+info.Lapsed > 0 {
		s.log.Info("match: tickets waited too long for a match, or did not take their seats", "shard", shard,
			"timed_out", info.TimedOut, "lapsed", info.Lapsed)
	}
}

// requeue puts the tickets of lapsed seats back, and returns how many by shard. The seats are free already; the lapse
// is listed until the ticket is in the queue, so that a crash between the two is made good by the next look.
func (s *Supervisor) requeue(ctx context.Context) map[string]int {
	count := make(map[string]int)
	for range 100 {
		lapses, err := s.alloc.Lapsed(ctx, reclaimLimit)
		if err != nil {
			s.failed("", "lapsed seats", err)
			return count
		}
		var settled []Lapse
		for _, l := range lapses {
			done, err := s.store.Requeue(ctx, l.Shard, l.Match, l.Ticket)
			if err != nil {
				s.failed(l.Shard, "requeue", err)
				continue
			}
			if done {
				count[l.Shard]++
				settled = append(settled, l)
			}
		}
		if len(settled) == 0 {
			return count
		}
		if err := s.alloc.Settled(ctx, settled); err != nil {
			s.failed("", "settle lapsed seats", err)
			return count
		}
		if len(lapses) < reclaimLimit {
			return count
		}
	}
	return count
}
