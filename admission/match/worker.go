package match

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
)

const (
	leastIdle = 25 * time.Millisecond // between claims that match nothing, without a hint
	mostIdle  = time.Second
	finishers = 4 // batches of a shard that are allocated and published while the next is compared
)

// WorkerConfig holds the optional settings of a Worker. A zero field means its default; none may be negative.
type WorkerConfig struct {
	// Name of the worker, for people: what tools list as the holder of a claim. Default: random.
	Name string
	// Lease is how long the store waits for a heartbeat before the worker is presumed dead. It is renewed every 2 s, or
	// in a third of Lease if that is less. Default 30 s.
	Lease time.Duration
	// Batch is how many tickets are compared at a time, 2 to MaxClaim. Default 500.
	Batch int
	// Drain is how long Run goes on after its context ended, to finish what is under way. Default 10 s.
	Drain  time.Duration
	Hooks  Hooks
	Logger *slog.Logger // receives failures, and lost leases. Nil discards.
}

// Worker makes matches: it claims tickets, compares them, records the matches, and has them allocated and published.
// Any number of workers, in any number of processes, serve the same queues.
type Worker struct {
	finisher
	queues map[string]Queue
	cfg    WorkerConfig
	bad    *slog.Logger // of refused groups, sampled
	ran    atomic.Bool
}

// NewWorker returns a worker for all shards of these queues. It does no I/O. Errors: a *fence.ArgumentError.
func NewWorker(store Store, alloc Allocator, queues []Queue, cfg *WorkerConfig) (*Worker, error) {
	c := setting.Of(cfg)
	c.Name, c.Batch = cmp.Or(c.Name, rand.Text()[:10]), cmp.Or(c.Batch, 500)
	var check setting.Check
	check.Refuse(!nameForm.MatchString(c.Name), "Name", c.Name, nameWant)
	check.From(10*time.Millisecond, "Lease", &c.Lease, 30*time.Second)
	check.Refuse(c.Batch < 2 || c.Batch > MaxClaim, "Batch", c.Batch, "2 to 1000 tickets, or zero for 500")
	check.Duration("Drain", &c.Drain, 10*time.Second)
	if check.Err != nil {
		return nil, check.Err
	}
	byName, err := checkQueues(queues)
	if err != nil {
		return nil, err
	}
	f, _, err := open(store, alloc, queues, c.Hooks, c.Logger)
	if err != nil {
		return nil, err
	}
	return &Worker{finisher: f, queues: byName, cfg: c, bad: sampled.Logger(f.log)}, nil
}

// Run serves the queues until ctx ends. Then it claims no more, finishes the matches under way for up to
// WorkerConfig.Drain, gives back what it holds, and returns nil. It runs once: a second call returns
// fence.ErrAlreadyRun.
func (w *Worker) Run(ctx context.Context) error {
	if !w.ran.CompareAndSwap(false, true) {
		return fence.ErrAlreadyRun
	}
	var g errgroup.Group
	for _, q := range w.queues {
		for _, shard := range q.shards() {
			g.Go(func() error {
				(&bench{Worker: w, q: q, shard: shard, hint: make(chan struct{}, 1),
					slots: make(chan struct{}, finishers)}).run(ctx)
				return nil
			})
		}
	}
	return g.Wait()
}

// bench is where a worker serves one shard.
type bench struct {
	*Worker
	q         Queue
	shard     string
	hint      chan struct{}
	slots     chan struct{}  // one for each batch that is being finished
	finishing sync.WaitGroup // those batches
	epoch     atomic.Uint64
	full      atomic.Int64 // unix time in ms until which there is no free seat

	mu      sync.Mutex
	battles map[fence.TileID]time.Time // that have no free seat, until when they are believed to have none
}

func (b *bench) run(ctx context.Context) {
	side, stop := context.WithCancel(context.WithoutCancel(ctx)) // heartbeats go on while the bench drains
	var sides sync.WaitGroup
	sides.Go(func() {
		for side.Err() == nil {
			if err := b.store.Arrivals(side, b.shard, func() { wait.Wake(b.hint) }); err != nil && side.Err() == nil {
				b.failed(b.shard, "subscribe", err)
			}
			wait.For(side, retryInterval)
		}
	})
	sides.Go(func() { b.heartbeats(side) })
	work, cancel := b.draining(ctx)
	b.serve(ctx, work)
	b.finishing.Wait()
	if e := Epoch(b.epoch.Load()); e != 0 {
		if err := b.store.Leave(work, b.shard, e); err != nil {
			b.failed(b.shard, "leave", err) // the lease ends by itself
		}
	}
	cancel()
	stop()
	sides.Wait()
}

// serve looks at the shard until ctx ends; what it does then lasts until work ends.
func (b *bench) serve(ctx, work context.Context) {
	idle := leastIdle
	for ctx.Err() == nil {
		if until := time.UnixMilli(b.full.Load()); time.Now().Before(until) {
			wait.For(ctx, time.Until(until))
		}
		if b.look(work) {
			idle = leastIdle
			continue
		}
		t := time.NewTimer(idle)
		select {
		case <-ctx.Done():
		case <-b.hint:
			idle = leastIdle
		case <-t.C:
			idle = min(2*idle, mostIdle)
		}
		t.Stop()
	}
}

func (b *bench) heartbeats(ctx context.Context) {
	for wait.For(ctx, min(2*time.Second, b.cfg.Lease/3)) {
		e := Epoch(b.epoch.Load())
		if e == 0 {
			continue
		}
		if err := b.store.Heartbeat(ctx, b.shard, e, b.cfg.Lease); err != nil && ctx.Err() == nil {
			b.lost("heartbeat", e, err)
		}
	}
}

// lost reports a failed call; a stale epoch is given up.
func (b *bench) lost(op string, e Epoch, err error) {
	if errors.Is(err, ErrStale) {
		if b.epoch.CompareAndSwap(uint64(e), 0) {
			hook.Call(b.hooks.Stale, b.shard)
			b.log.Warn("match: this worker was presumed dead; others have its tickets", "shard", b.shard, "epoch", e)
		}
		return
	}
	b.failed(b.shard, op, err)
}

// look claims tickets, makes matches and gives the rest back. It reports whether to look again at once.
func (b *bench) look(ctx context.Context) (again bool) {
	began := time.Now()
	claim, err := b.store.Claim(ctx, b.shard, Claim{b.cfg.Name, Epoch(b.epoch.Load()), b.cfg.Lease, b.cfg.Batch})
	if err != nil {
		b.lost("claim", Epoch(b.epoch.Load()), err)
		return false
	}
	b.epoch.Store(uint64(claim.Epoch))
	if len(claim.Tickets) == 0 {
		return false
	}
	tickets, full := b.withoutFull(claim.Tickets)
	matches, unmatched, refused := form(b.q, tickets)
	unmatched = append(unmatched, full...)
	if refused != nil {
		hook.Call(b.hooks.Failed, FailInfo{b.shard, "form", refused})
		b.bad.Warn("match: a strategy's groups were refused; their tickets wait", "shard", b.shard, "error", refused)
	}
	recorded, ok := b.record(ctx, claim.Epoch, matches, &unmatched)
	if !ok {
		return false
	}
	if len(recorded) > 0 {
		b.handOver(ctx, recorded)
	}
	arrivals := claim.Arrivals
	if len(unmatched) > 0 {
		if arrivals, err = b.store.Release(ctx, b.shard, claim.Epoch, unmatched); err != nil {
			b.lost("release", claim.Epoch, err) // the next claim returns them again
			return false
		}
	}
	hook.Call(b.hooks.Looked, LookInfo{b.shard, len(claim.Tickets), len(recorded), len(unmatched), time.Since(began)})
	return len(recorded) > 0 || arrivals != claim.Arrivals
}

// draining is a context that outlives ctx by WorkerConfig.Drain.
func (b *bench) draining(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(b.cfg.Drain, cancel) })
	return work, func() { stop(); cancel() }
}

// record stores matches, and repeats it while the outcome is not known: what was recorded must be finished, and what
// was not must go back. Tickets of matches that could not be recorded are added to the unmatched.
func (b *bench) record(ctx context.Context, e Epoch, matches []Match, unmatched *[]Unmatched) ([]Match, bool) {
	if len(matches) == 0 {
		return nil, true
	}
	for i := range matches {
		matches[i].ID, matches[i].Shard = rand.Text(), b.shard
	}
	results, err := b.store.Record(ctx, b.shard, e, matches)
	for err != nil {
		b.lost("record", e, err)
		if b.epoch.Load() != uint64(e) || errors.Is(err, fence.ErrInvalidArgument) || !wait.For(ctx, retryInterval) {
			return nil, false // what was recorded all the same is finished by a supervisor
		}
		results, err = b.store.Record(ctx, b.shard, e, matches)
	}
	var recorded []Match
	for i, m := range matches {
		if results[i] == nil {
			recorded = append(recorded, m)
			continue
		}
		for _, t := range m.Tickets {
			*unmatched = append(*unmatched, Unmatched{Ticket: t.ID})
		}
	}
	return recorded, true
}

// handOver finishes matches while the next tickets are compared. After a lease they are the supervisors': an allocator
// that fails for some matches must not keep the places of the others.
func (b *bench) handOver(ctx context.Context, matches []Match) {
	b.slots <- struct{}{}
	b.finishing.Go(func() {
		defer func() { <-b.slots }()
		ctx, cancel := context.WithTimeout(ctx, b.cfg.Lease)
		defer cancel()
		b.finish(ctx, b.shard, matches, b.noSeat)
	})
}

// A worker makes no matches for noSeatPause after one that found no seat. A battle without the seats that its backfill
// asks for, which may be gone, says nothing of the other tiles: only its own backfills wait, for battlePause.
const (
	noSeatPause = 250 * time.Millisecond
	battlePause = 2 * time.Second
)

func (b *bench) noSeat(battle fence.TileID) {
	if battle == 0 {
		b.full.Store(time.Now().Add(noSeatPause).UnixMilli())
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.battles == nil {
		b.battles = make(map[fence.TileID]time.Time)
	}
	b.battles[battle] = time.Now().Add(battlePause)
}

// withoutFull takes the backfills of battles that have no seats now out of a claim.
func (b *bench) withoutFull(tickets []Candidate) (rest []Candidate, full []Unmatched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.battles) == 0 {
		return tickets, nil
	}
	now := time.Now()
	maps.DeleteFunc(b.battles, func(_ fence.TileID, until time.Time) bool { return !now.Before(until) })
	for _, t := range tickets {
		if t.Backfill != nil && now.Before(b.battles[t.Backfill.Tile]) {
			full = append(full, Unmatched{t.ID, Why{Reason: NoSeat}})
			continue
		}
		rest = append(rest, t)
	}
	return rest, full
}
