package match

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
)

const (
	reclaimLimit = 500                    // tickets, and matches, that one call of Store.Reclaim returns at most
	looks        = 8                      // shards that a supervisor looks at together
	slowLook     = 250 * time.Millisecond // a shard that takes longer leaves its place to the next
	giveUp       = 2 * time.Minute        // of a match whose allocation fails all the time; then it is dissolved
)

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

	mu    sync.Mutex
	stuck map[string]time.Time // matches that could not be finished, and since when
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
	return &Supervisor{finisher: f, shards: shards, period: c.Period, stuck: make(map[string]time.Time)}, nil
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
	together(s.shards, func(shard string) { s.look(ctx, shard, lapsed[shard]) })
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.stuck, func(_ string, since time.Time) bool { return time.Since(since) > 2*giveUp })
}

// together does something for each shard, for some of them at once. A node that hangs must not hold up the shards of
// the others: a slow one does not count for long.
func together(shards []string, do func(shard string)) {
	places := make(chan struct{}, looks)
	var all sync.WaitGroup
	for _, shard := range shards {
		places <- struct{}{}
		all.Go(func() {
			leave := sync.OnceFunc(func() { <-places })
			slow := time.AfterFunc(slowLook, leave)
			do(shard)
			slow.Stop()
			leave()
		})
	}
	all.Wait()
}

// look reclaims one shard until nothing is left to reclaim, or for a period.
func (s *Supervisor) look(ctx context.Context, shard string, lapsed int) {
	began, info := time.Now(), ReclaimInfo{Shard: shard, Lapsed: lapsed}
	for more := true; more && ctx.Err() == nil && time.Since(began) <= s.period; {
		r, err := s.store.Reclaim(ctx, shard, reclaimLimit)
		if err != nil {
			s.failed(shard, "reclaim", err)
			return
		}
		info.Returned += len(r.Returned)
		info.TimedOut += len(r.TimedOut)
		info.Pending += len(r.Pending)
		if len(r.Pending) > 0 { // what fails is found again, behind the others
			s.giveUp(ctx, shard, s.once(ctx, shard, r.Pending, func(fence.TileID) {}))
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

// giveUp dissolves matches that could not be finished for long. If one has seats all the same they lapse, and its
// tickets, which wait again, have an end.
func (s *Supervisor) giveUp(ctx context.Context, shard string, left []Match) {
	for _, m := range left {
		s.mu.Lock()
		since, known := s.stuck[m.ID]
		if !known {
			s.stuck[m.ID] = time.Now()
		}
		s.mu.Unlock()
		if !known || time.Since(since) < giveUp {
			continue
		}
		if err := s.store.Dissolve(ctx, shard, m.ID, Why{Reason: NoSeat}); err != nil {
			s.failed(shard, "dissolve", err)
			continue
		}
		s.log.Warn("match: a match could not be allocated for long and was dissolved", "shard", shard, "match", m.ID)
	}
}

// requeue puts the tickets of lapsed seats back, and returns how many by shard. The seats are free already; the lapse
// is listed until the ticket is in the queue, so that a crash between the two is made good by the next look. A shard
// that fails is left alone until then; its lapses are listed behind those of others.
func (s *Supervisor) requeue(ctx context.Context) map[string]int {
	count, failed := make(map[string]int), make(map[string]bool)
	var mu sync.Mutex
	for range 100 {
		lapses, err := s.alloc.Lapsed(ctx, reclaimLimit)
		if err != nil {
			s.failed("", "lapsed seats", err)
			return count
		}
		byShard := make(map[string][]Lapse)
		for _, l := range lapses {
			if !failed[l.Shard] {
				byShard[l.Shard] = append(byShard[l.Shard], l)
			}
		}
		var settled []Lapse
		together(slices.Sorted(maps.Keys(byShard)), func(shard string) {
			done, err := s.requeueAll(ctx, byShard[shard])
			mu.Lock()
			defer mu.Unlock()
			settled = append(settled, done...)
			count[shard] += len(done)
			failed[shard] = err != nil
		})
		if len(settled) > 0 {
			if err := s.alloc.Settled(ctx, settled); err != nil {
				s.failed("", "settle lapsed seats", err)
				return count
			}
		}
		if len(lapses) < reclaimLimit || ctx.Err() != nil {
			return count
		}
	}
	return count
}

// requeueAll puts the tickets of one shard back, and returns those that are, until the store fails.
func (s *Supervisor) requeueAll(ctx context.Context, lapses []Lapse) (settled []Lapse, err error) {
	for _, l := range lapses {
		done, err := s.store.Requeue(ctx, l.Shard, l.Match, l.Ticket)
		if err != nil {
			s.failed(l.Shard, "requeue", err)
			return settled, err
		}
		if done {
			settled = append(settled, l)
		}
	}
	return settled, nil
}
