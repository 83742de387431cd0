package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
)

// matchWorker is one life of a process that makes matches.
type matchWorker struct {
	faultinject.MatchWorker
	name string
	stop func()
}

// hire starts a match worker.
func (l *lobby) hire() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hired++
	w := &matchWorker{name: fmt.Sprint("matcher-", l.hired)}
	w.Line = faultinject.New()
	run, err := match.NewWorker(w.Store(l.store), w.Seats(l.seats), []match.Queue{l.queue},
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

// workerKilled is the fault that a match worker dies, with a batch claimed or with matches recorded that nobody is
// told of. Another takes its place when all that it held waits again or has a seat.
func (l *lobby) workerKilled() chaos.Fault {
	return chaos.Fault{Kind: faultinject.MatchWorkerKilled,
		Choose: func(_ context.Context, r *chaos.Runner) (*chaos.Injection, error) {
			living := l.living()
			w := living[r.Intn(len(living))]
			after := []faultinject.Step{faultinject.Claiming, faultinject.Recording}[r.Intn(2)]
			var back time.Duration
			return &chaos.Injection{System: chaos.Matchmaking, Inject: chaos.Always(func() { l.kill(w, after) }),
				Repair: func(ctx context.Context) error {
					err := chaos.Until(ctx, "a dead worker holds nothing", func() bool { return l.free(ctx, w) })
					died, _ := w.Died()
					back = time.Since(died)
					return errors.Join(err, l.hire())
				},
				Recovered: func() time.Duration { return back }}, nil
		}}
}

// kill ends a worker after a step.
func (l *lobby) kill(w *matchWorker, after faultinject.Step) {
	w.Kill(after)
	l.killed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers = slices.DeleteFunc(l.workers, func(other *matchWorker) bool { return other == w })
	l.graves = append(l.graves, w)
}

// free reports whether none of the tickets that a dead worker held is in a claim or a match that is not finished. A
// ticket that another worker has at this moment is looked at again.
func (l *lobby) free(ctx context.Context, w *matchWorker) bool {
	_, hands := w.Died()
	for _, id := range hands {
		s, err := l.tickets.Status(ctx, l.queue.Name, id)
		if err != nil || s.State == match.Claimed || s.State == match.Matched {
			return false
		}
	}
	return true
}
