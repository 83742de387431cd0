package plan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

var (
	// ErrNoSubject is a Planner's answer if there is nothing left to plan for: the tile or the entity is gone.
	ErrNoSubject = errors.New("nothing left to plan for")
	// ErrClaimLost ends the context of a call whose request is another worker's.
	ErrClaimLost = errors.New("the claim on the request is lost")
	// ErrHangs ends the context of a call that has reported no progress for too long.
	ErrHangs = errors.New("no progress within the deadline")
	// ErrDrained ends the context of a call that had not ended when the worker had to.
	ErrDrained = errors.New("the worker ends")
)

// Worker calls the slow function for requests, several at once, until it is drained. Run any number of them, in any
// number of processes.
type Worker struct {
	store   Store
	planner Planner
	cfg     WorkerConfig
	ran     atomic.Bool
	wake    chan struct{} // capacity 1: a slot is free, or requests may be waiting
	ends    []chan *call  // by shard: calls whose end is to be stored

	mu      sync.Mutex
	running map[string]*call // by the request's ID
	calls   int              // planners that have not returned, also for requests that this worker lost and has again
	players int              // of those
	waiting []backlog        // by shard
	turn    int              // slots filled while both tiers waited, since the background's turn
	next    int              // shard where the search for work begins
	stats   WorkerStats
}

// backlog is what a worker believes that a shard has for it.
type backlog struct {
	players, background bool
	pause               time.Time // not asked until then: the shard could not be reached
}

// WorkerStats is what a Worker has done since it was made.
type WorkerStats struct {
	Running   int // calls
	Claimed   uint64
	Succeeded uint64
	Failed    uint64 // attempts
	NoSubject uint64
	Lost      uint64 // claims that were lost, or results refused
	Hung      uint64 // calls that were cancelled for want of progress; they count as Failed, too

	StoreFailures uint64 // calls of the store that failed; they are tried again
}

// NewWorker returns a worker. It does no I/O. A nil cfg means the defaults. A *fence.ArgumentError names what is
// missing or out of range.
func NewWorker(store Store, planner Planner, cfg *WorkerConfig) (*Worker, error) {
	if err := checkStore(store); err != nil {
		return nil, err
	}
	if planner == nil {
		return nil, &fence.ArgumentError{Field: "planner", Value: "nil", Want: "the slow function"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{store: store, planner: planner, cfg: c, wake: make(chan struct{}, 1), running: map[string]*call{},
		waiting: make([]backlog, store.Shards()), ends: make([]chan *call, store.Shards())}
	for i := range w.ends {
		w.ends[i] = make(chan *call, 2*c.Slots)
	}
	return w, nil
}

// Stats returns the counters, all of one moment.
func (w *Worker) Stats() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Running = w.calls
	return s
}

// Run works until ctx ends. It then takes no more requests, and waits for running calls for up to DrainTimeout, saying
// every few seconds where it stands. Calls that have not ended by then are cancelled, and their requests returned to
// the queue for other workers; Run then returns an error that matches ErrDrained, otherwise nil. The other error is
// fence.ErrAlreadyRun.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return fmt.Errorf("plan: worker: %w", fence.ErrAlreadyRun)
	}
	w.cfg.Logger.Info("plan: worker takes requests", "worker", w.cfg.name, "slots", w.cfg.Slots)
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var helpers, hearing sync.WaitGroup
	hearing.Go(func() { w.hear(ctx) })
	helpers.Go(func() { w.renew(life) })
	for shard := range w.ends {
		helpers.Go(func() { w.finish(life, shard) })
	}
	w.take(ctx, life)
	hearing.Wait()
	err := w.drain(end)
	end(nil)
	helpers.Wait()
	return err
}

// hear listens for requests.
func (w *Worker) hear(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.store.Wake(ctx, func(shard int, t Tier) {
			w.mu.Lock()
			if t == Player {
				w.waiting[shard].players = true
			} else {
				w.waiting[shard].background = true
			}
			w.mu.Unlock()
			w.notify()
		})
		if err != nil {
			w.cfg.Logger.Warn("plan: worker is not notified of requests, and looks for them itself", "error", err)
			wait.For(ctx, workerPoll)
		}
	}
}

func (w *Worker) notify() { wait.Wake(w.wake) }

// storeFailed counts a call of the store that failed.
func (w *Worker) storeFailed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.StoreFailures++
}

// workerPoll is how often a worker looks for requests without being notified.
const workerPoll = time.Second

// take fills free slots until ctx ends.
func (w *Worker) take(ctx, life context.Context) {
	poll := time.NewTicker(workerPoll)
	defer poll.Stop()
	w.lookEverywhere(ctx, life)
	for {
		w.fill(ctx, life)
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-poll.C:
			w.lookEverywhere(ctx, life)
		}
	}
}

// lookEverywhere claims in every shard, so that leases that have ended are noticed, and requests whose notification
// was lost.
func (w *Worker) lookEverywhere(ctx, life context.Context) {
	for shard := range w.ends {
		if ctx.Err() != nil {
			return
		}
		c := w.free()
		if w.waitsElsewhere(shard) {
			c.Any, c.Players = 0, 0 // a player there goes before what may be here
		}
		w.claim(ctx, life, shard, c)
	}
}

// waitsElsewhere reports whether a player waits in another shard.
func (w *Worker) waitsElsewhere(shard int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.waiting {
		if i != shard && w.waiting[i].players {
			return true
		}
	}
	return false
}

// fill claims until no slot is free, or nothing is known to wait. The choice is made for each claim anew: players
// first, and every eighth time the background.
func (w *Worker) fill(ctx, life context.Context) {
	for ctx.Err() == nil {
		shard, c := w.choose()
		if shard < 0 {
			return
		}
		w.claim(ctx, life, shard, c)
	}
}

// backgroundEvery is the share of the background while players wait: one slot in so many.
const backgroundEvery = 8

// choose picks the shard to claim from, and what; a negative shard if there is nothing to do.
func (w *Worker) choose() (shard int, c Claim) {
	c = w.free()
	w.mu.Lock()
	defer w.mu.Unlock()
	players, background := w.seek(Player), w.seek(Background)
	switch {
	case c.Any > 0 && background >= 0 && (players < 0 || w.turn >= backgroundEvery-1):
		if c.Background = true; players >= 0 {
			c.Any, c.Players = 1, 0
		}
		return background, c
	case c.Any+c.Players > 0 && players >= 0:
		if background >= 0 {
			c.Any = max(0, min(c.Any, backgroundEvery-1-w.turn))
		}
		return players, c
	}
	return -1, c
}

// seek finds a shard that may have requests of a tier: each in its turn. w.mu is held.
func (w *Worker) seek(t Tier) int {
	now := time.Now()
	for i := range w.waiting {
		shard := (w.next + i) % len(w.waiting)
		b := &w.waiting[shard]
		if (t == Player && b.players || t == Background && b.background) && now.After(b.pause) {
			return shard
		}
	}
	return -1
}

// free is a claim for all slots that are free.
func (w *Worker) free() Claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	free := w.cfg.Slots - w.calls
	kept := min(free, max(0, w.cfg.reserved()-w.players))
	return Claim{Worker: w.cfg.name, Lease: w.cfg.Lease, Attempts: attempts,
		Any: min(free-kept, MaxAsks/2), Players: min(kept, MaxAsks/2)}
}

// claimTimeout bounds one call of the store, so that a shard that hangs delays the others by no more.
const claimTimeout = 500 * time.Millisecond

// claim takes requests from a shard and starts their calls.
func (w *Worker) claim(ctx, life context.Context, shard int, c Claim) {
	w.mu.Lock()
	paused := time.Now().Before(w.waiting[shard].pause)
	w.waiting[shard].players, w.waiting[shard].background = false, false // what comes from now on is notified
	w.mu.Unlock()
	if paused {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	got, err := w.store.Claim(bounded, shard, c)
	if ctx.Err() != nil && err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.waiting[shard]
	if err != nil {
		b.pause = time.Now().Add(workerPoll + claimTimeout)
		w.stats.StoreFailures++
		w.cfg.Logger.Warn("plan: requests not claimed", "shard", shard, "error", err)
		return
	}
	b.players, b.background = b.players || got.Players > 0, b.background || got.Background > 0
	w.next = (shard + 1) % len(w.waiting)
	for _, r := range got.Requests {
		w.start(life, shard, r)
		if w.turn++; r.Tier == Background {
			w.turn = 0
		}
	}
}

// drainReport is how often a drain says where it stands.
const drainReport = 5 * time.Second

// drain waits for the running calls.
func (w *Worker) drain(end context.CancelCauseFunc) error {
	deadline := time.Now().Add(w.cfg.DrainTimeout)
	for report := time.Now(); ; wait.For(context.Background(), 10*time.Millisecond) {
		n := w.Stats().Running
		switch now := time.Now(); {
		case n == 0:
			w.cfg.Logger.Info("plan: worker is drained", "worker", w.cfg.name)
			return nil
		case now.After(deadline):
			return w.abandon(end, n)
		case !now.Before(report):
			w.cfg.Logger.Info("plan: worker drains", "worker", w.cfg.name, "running", n,
				"left", deadline.Sub(now).Round(time.Second))
			report = now.Add(drainReport)
		}
	}
}

// abandonTimeout is how long calls may take to end when they are cancelled.
const abandonTimeout = 2 * time.Second

// abandon cancels the running calls; their requests return to the queue.
func (w *Worker) abandon(end context.CancelCauseFunc, n int) error {
	w.mu.Lock()
	for _, c := range w.running {
		c.cancel(ErrDrained)
	}
	w.mu.Unlock()
	for limit := time.Now().Add(abandonTimeout); w.Stats().Running > 0 && time.Now().Before(limit); {
		wait.For(context.Background(), 10*time.Millisecond)
	}
	end(ErrDrained)
	err := fmt.Errorf("plan: %d calls had not ended after %v, and were returned to the queue: %w", n,
		w.cfg.DrainTimeout, ErrDrained)
	w.cfg.Logger.Warn("plan: worker ends with calls running", "worker", w.cfg.name, "error", err)
	return err
}

// pauseAfter is how long a request rests after a failed attempt: drawn from the whole of a range that doubles.
func (w *Worker) pauseAfter(attempt int) time.Duration {
	most := min(firstPause<<min(attempt-1, 5), longestPause)
	return rand.N(most) + 1
}
