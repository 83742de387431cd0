package pilots

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait"
	slow "github.com/tilefence/tilefence/tile/plan"
)

// planWorker is one worker, and the way to the store that dies with it.
type planWorker struct {
	line *faultinject.Line
	stop func()
}

// hire starts a worker.
func (p *Pilots) hire() error {
	w := &planWorker{line: faultinject.New()}
	b := p.Backends
	b.Plans = w.line.Plans(b.Plans)
	server, err := tilefence.NewPlanServer(b, &shownPlanner{p, w.line}, &tilefence.PlanServerConfig{Sink: p,
		Worker: slow.WorkerConfig{Lease: planLease, DrainTimeout: planLongest + time.Second}, Logger: p.Logger})
	if err != nil {
		return err
	}
	w.stop = p.Start(server.Run)
	p.mu.Lock()
	p.workers = append(p.workers, w)
	p.mu.Unlock()
	return nil
}

// think is the slow function: it takes as long for a request in every run, a span that its bytes decide. Then it
// reads the tile as it is now, and steps where a bot of the game without cards would.
func (p *Pilots) think(ctx context.Context, r slow.Request) ([]byte, slow.Usage, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.Entity + "\x00" + r.Words))
	if !wait.For(ctx, planShortest+time.Duration(h.Sum64()%uint64(planLongest-planShortest))) {
		return nil, slow.Usage{}, context.Cause(ctx)
	}
	ground, err := game.GroundOf(r.Tile, nil)
	if err != nil {
		return nil, slow.Usage{}, err
	}
	view, err := players.ReadTile(ctx, p.Backends.Log, r.Tile, ground)
	if err != nil {
		return nil, slow.Usage{}, err
	}
	habits := &game.BotConfig{MoveChance: 1, FirstDraw: 1 << 40}
	order, acts := game.NewBot(r.Entity, ground, p.Seed, habits).Decide(view, view.Tick())
	if !acts || order.Kind != game.Move {
		return nil, slow.Usage{}, slow.ErrNoSubject // the ship is gone, or has no room
	}
	body := order.Encode()
	return body, slow.Usage{Model: "stand-in", Input: int64(len(r.Words)+len(r.Entity)) / 4,
		Output: int64(len(body)) / 4}, nil
}

// shownPlanner is a planner of which the page shows what it is at. In a worker that was killed no call returns.
type shownPlanner struct {
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
	return s.think(ctx, r)
}
