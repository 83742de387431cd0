package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
)

// matchWorker is one life of a process that makes matches.
type matchWorker struct {
	name string
	line *faultinject.Line
	stop func()

	mu    sync.Mutex
	dying step     // after which it dies, once it has tickets in its hands
	hands []string // the tickets that it died with
	died  time.Time
}

// step is what a worker has done last when it dies.
type step int

const (
	claiming  step = 1
	recording step = 2
)

// hire starts a match worker.
func (l *lobby) hire() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hired++
	w := &matchWorker{name: fmt.Sprint("matcher-", l.hired), line: faultinject.New()}
	run, err := match.NewWorker(&workerStore{l.store, w}, &workerSeats{l.seats, w}, []match.Queue{l.queue},
		&match.WorkerConfig{Name: w.name, Lease: matchLease, Drain: time.Second,
			Hooks: match.Hooks{Finished: l.finished}, Logger: l.logger})
	if err != nil {
		return err
	}
	w.stop = l.start(run.Run)
	l.workers = append(l.workers, w)
	return nil
}

// living are the workers that live.
func (l *lobby) living() []*matchWorker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.workers)
}

// handsFull is how long chaos waits for a worker to have tickets in its hands.
const handsFull = 3 * time.Second

// workerKilled is the fault that a match worker dies, with a batch claimed or with matches recorded that nobody is
// told of. Another takes its place when all that it held waits again or has a seat.
func (l *lobby) workerKilled() fault {
	return fault{"match worker killed", "kill -9 with tickets in hand. A supervisor finds them when its lease ends.",
		func(_ context.Context, c *chaos) (*strike, error) {
			living := l.living()
			w := living[c.rng.IntN(len(living))]
			after := []step{claiming, recording}[c.rng.IntN(2)]
			var back time.Duration
			return &strike{system: matchmaking, hit: always(func() { l.kill(w, after) }),
				heal: func(ctx context.Context) error {
					err := c.until(ctx, "a dead worker holds nothing", func() bool { return l.free(ctx, w) })
					back = time.Since(w.died)
					return errors.Join(err, l.hire())
				},
				recovery: func() time.Duration { return back }}, nil
		}}
}

// kill ends a worker after a step, as kill -9 does: no call of it returns any more. If it gets no ticket for a while it
// dies with empty hands.
func (l *lobby) kill(w *matchWorker, after step) {
	w.mu.Lock()
	w.dying = after
	w.mu.Unlock()
	for end := time.Now().Add(handsFull); time.Now().Before(end) && !w.line.Is(faultinject.Dead); {
		time.Sleep(watchEvery)
	}
	w.mu.Lock()
	w.die(nil)
	w.mu.Unlock()
	l.killed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers = slices.DeleteFunc(l.workers, func(other *matchWorker) bool { return other == w })
	l.graves = append(l.graves, w)
}

// free reports whether none of the tickets that a dead worker held is in a claim or a match that is not finished. A
// ticket that another worker has at this moment is looked at again.
func (l *lobby) free(ctx context.Context, w *matchWorker) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.hands {
		s, err := l.tickets.Status(ctx, l.queue.Name, id)
		if err != nil || s.State == match.Claimed || s.State == match.Matched {
			return false
		}
	}
	return true
}

// did is called when a worker has done a step with tickets. It returns when the worker lives.
func (w *matchWorker) did(s step, tickets []string) error {
	w.mu.Lock()
	if w.dying == s && len(tickets) > 0 {
		w.die(tickets)
	}
	w.mu.Unlock()
	return w.line.Lives()
}

// die ends the worker with tickets in its hands. The mutex is held.
func (w *matchWorker) die(hands []string) {
	if w.died.IsZero() {
		w.hands, w.died = hands, time.Now()
		w.line.Set(faultinject.Dead)
	}
}

// workerStore is the store as a worker that can be killed sees it. What is not here a worker calls after a claim, a
// record or an allocation, and a dead one does not return from these.
type workerStore struct {
	match.Store
	*matchWorker
}

func (s *workerStore) Claim(ctx context.Context, shard string, c match.Claim) (match.Holding, error) {
	if err := s.line.Lives(); err != nil {
		return match.Holding{}, err
	}
	h, err := s.Store.Claim(ctx, shard, c)
	var tickets []string
	for _, t := range h.Tickets {
		tickets = append(tickets, t.ID)
	}
	if dead := s.did(claiming, tickets); dead != nil {
		return match.Holding{}, dead
	}
	return h, err
}

func (s *workerStore) Record(ctx context.Context, shard string, e match.Epoch, all []match.Match) ([]error, error) {
	if err := s.line.Lives(); err != nil {
		return nil, err
	}
	errs, err := s.Store.Record(ctx, shard, e, all)
	var tickets []string
	for _, m := range all {
		for _, t := range m.Tickets {
			tickets = append(tickets, t.ID)
		}
	}
	if dead := s.did(recording, tickets); dead != nil {
		return nil, dead
	}
	return errs, err
}

func (s *workerStore) Heartbeat(ctx context.Context, shard string, e match.Epoch, lease time.Duration) error {
	if err := s.line.Lives(); err != nil {
		return err
	}
	return s.Store.Heartbeat(ctx, shard, e, lease)
}

// workerSeats is the allocator as a worker that can be killed sees it.
type workerSeats struct {
	match.Allocator
	*matchWorker
}

func (s *workerSeats) Allocate(ctx context.Context, all []match.Match) []match.Allocation {
	if err := s.line.Lives(); err != nil {
		answers := make([]match.Allocation, len(all))
		for i := range answers {
			answers[i].Err = &fence.StoreError{Op: "allocate", Outcome: fence.ErrNotApplied, Err: err}
		}
		return answers
	}
	return s.Allocator.Allocate(ctx, all)
}
