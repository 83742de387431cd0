package pilots

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject"
	slow "github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/standin"
	"github.com/tilefence/tilefence/tile/region"
)

// planWorker is one worker, and the way to the store that dies with it.
type planWorker struct {
	*slow.Worker
	line *faultinject.Line
	stop func()
}

// hire starts a worker.
func (p *Pilots) hire() error {
	w := &planWorker{line: faultinject.New()}
	planner := standin.New(&standin.Config{Shortest: planShortest, Longest: planLongest, Think: p.think})
	var err error
	w.Worker, err = slow.NewWorker(w.line.Plans(p.Store), &shownPlanner{planner, p, w.line},
		&slow.WorkerConfig{Lease: planLease, DrainTimeout: planLongest + time.Second, Logger: p.Logger})
	if err != nil {
		return err
	}
	w.stop = p.Start(func(ctx context.Context) error {
		if err := w.Run(ctx); err != nil && !errors.Is(err, slow.ErrDrained) {
			return err
		}
		return nil
	})
	p.mu.Lock()
	p.workers = append(p.workers, w)
	p.mu.Unlock()
	return nil
}

// think is the slow function, once it has taken its time: it reads the tile as it is now, and steps where a bot of the
// game without cards would.
func (p *Pilots) think(ctx context.Context, r slow.Request) ([]byte, error) {
	ground, err := region.Of(r.Tile)
	if err != nil {
		return nil, err
	}
	view, err := players.ReadTile(ctx, p.Log, r.Tile, ground)
	if err != nil {
		return nil, err
	}
	habits := &game.BotConfig{MoveChance: 1, FirstDraw: 1 << 40}
	order, acts := game.NewBot(r.Entity, ground, p.Seed, habits).Decide(view, view.Tick())
	if !acts || order.Kind != game.Move {
		return nil, slow.ErrNoSubject // the ship is gone, or has no room
	}
	return order.Encode(), nil
}

// shownPlanner is a planner of which the page shows what it is at. In a worker that was killed no call returns.
type shownPlanner struct {
	slow.Planner
	*Pilots
	line *faultinject.Line
}

// Plan implements slow.Planner.
func (s *shownPlanner) Plan(ctx context.Context, r slow.Request) ([]byte, slow.Usage, error) {
	s.mu.Lock()
	s.calls[r.ID] = s.line
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls[r.ID] == s.line {
			delete(s.calls, r.ID)
		}
	}()
	return s.Planner.Plan(ctx, r)
}
