package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/internal/faultinject"
)

// MatchWorkers are the match servers of a lobby, which a fault kills. Set the fields before use. It is safe for
// concurrent use.
type MatchWorkers struct {
	Backends tilefence.Backends
	Queue    match.Queue
	Tickets  *match.Lobby
	Config   tilefence.MatchServerConfig                     // of each, with an Allocator; it is given a name
	Start    func(func(context.Context) error) (stop func()) // runs beside the servers

	mu      sync.Mutex
	workers []*MatchWorker
	hired   int
	killed  int64
	graves  []*MatchWorker // killed: their goroutines wait for the end
}

// MatchWorker is one life of a process that makes matches.
type MatchWorker struct {
	faultinject.MatchWorker
	stop func()
}

// Hire starts a match server.
func (l *MatchWorkers) Hire() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hired++
	w, cfg := &MatchWorker{}, l.Config
	w.Line, cfg.Worker.Name = faultinject.New(), fmt.Sprint("matcher-", l.hired)
	b := l.Backends
	b.Matches, cfg.Allocator = w.Backend(b.Matches), w.Seats(cfg.Allocator)
	run, err := tilefence.NewMatchServer(b, []match.Queue{l.Queue}, &cfg)
	if err != nil {
		return err
	}
	w.stop = l.Start(run.Run)
	l.workers = append(l.workers, w)
	return nil
}

// Close stops the workers, and those that were killed.
func (l *MatchWorkers) Close() {
	l.mu.Lock()
	workers := append(l.workers, l.graves...)
	l.workers, l.graves = nil, nil
	l.mu.Unlock()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			w.Line.Bury()
			w.stop()
		})
	}
	all.Wait()
}

// Living are the workers that live.
func (l *MatchWorkers) Living() []*MatchWorker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.workers)
}

// Killed is the fault that a match worker dies, with a batch claimed or with matches recorded of which no player has
// heard. Another takes its place when all that it held waits again or has a seat.
func (l *MatchWorkers) Killed() Fault {
	return Fault{Kind: faultinject.MatchWorkerKilled,
		Choose: func(_ context.Context, r *Runner) (*Injection, error) {
			living := l.Living()
			w := living[r.Intn(len(living))]
			after := []faultinject.Step{faultinject.Claiming, faultinject.Recording}[r.Intn(2)]
			var back time.Duration
			return &Injection{System: Matchmaking, Inject: Always(func() { l.Kill(w, after) }),
				Repair: func(ctx context.Context) error {
					err := Until(ctx, "a dead worker holds nothing", func() bool { return l.Free(ctx, w) })
					died, _ := w.Died()
					back = time.Since(died)
					return errors.Join(err, l.Hire())
				},
				Recovered: func() time.Duration { return back }}, nil
		}}
}

// Kill ends a worker after a step.
func (l *MatchWorkers) Kill(w *MatchWorker, after faultinject.Step) {
	w.Kill(after)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers = slices.DeleteFunc(l.workers, func(other *MatchWorker) bool { return other == w })
	l.graves, l.killed = append(l.graves, w), l.killed+1
}

// Deaths is how many workers were killed.
func (l *MatchWorkers) Deaths() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

// Free reports whether none of the tickets that a dead worker held is in a claim or a match that is not finished. A
// ticket that another worker has at this moment is looked at again.
func (l *MatchWorkers) Free(ctx context.Context, w *MatchWorker) bool {
	_, hands := w.Died()
	for _, id := range hands {
		s, err := l.Tickets.Status(ctx, l.Queue.Name, id)
		if err != nil || s.State == match.Claimed || s.State == match.Matched {
			return false
		}
	}
	return true
}
