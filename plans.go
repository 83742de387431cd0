package tilefence

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/internal/health"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/taskgroup"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
)

// PlanServerConfig holds the optional settings of a PlanServer. Nil and the zero value are valid.
type PlanServerConfig struct {
	// Worker are the settings of the calls. Its DrainTimeout is 10 s by default, since the server ends within
	// StopTimeout.
	Worker plan.WorkerConfig

	// Sink takes what the calls have used, for billing. Any number of servers may have one. Nil: the events stay in
	// the store, for a server that has.
	Sink plan.Sink

	// Logger is also that of Worker if it has none. Nil discards.
	Logger *slog.Logger
}

// PlanServer is a complete server of slow decisions: it calls the game's slow function, such as a model, for what
// tiles ask of TileServer.Plans, with the other plan servers that run.
//
// All methods may be called from any goroutine.
type PlanServer struct {
	watched

	worker *plan.Worker
	biller *plan.Biller // nil without a sink
	log    *slog.Logger
	ran    atomic.Bool

	unreached, failing, answering health.Rising
}

// planDrain is how long the calls of a server that stops may take to end.
const planDrain = 10 * time.Second

// NewPlanServer returns a server that calls planner. A nil cfg means the defaults.
//
// It needs Plans. It does no I/O and starts nothing. Errors: a *fence.ArgumentError.
func NewPlanServer(b Backends, planner plan.Planner, cfg *PlanServerConfig) (*PlanServer, error) {
	if err := require("PlanServer", b.plans()); err != nil {
		return nil, err
	}
	c := setting.Of(cfg)
	c.Logger = orDiscard(c.Logger)
	c.Worker.Logger = cmp.Or(c.Worker.Logger, c.Logger)
	c.Worker.DrainTimeout = cmp.Or(c.Worker.DrainTimeout, planDrain)
	s := &PlanServer{log: c.Logger}
	var err error
	if s.worker, err = plan.NewWorker(b.Plans, planner, &c.Worker); err != nil {
		return nil, err
	}
	if c.Sink != nil {
		if s.biller, err = plan.NewBiller(b.Plans, c.Sink, c.Worker.Logger); err != nil {
			return nil, err
		}
	}
	s.conditions.Of(b.Plans)
	s.worlds = health.NewWorlds(b.Authority, c.Logger, []any{b.Plans}, nil)
	return s, nil
}

// PlanServerStats are the figures of a plan server.
type PlanServerStats struct {
	Worker plan.WorkerStats
}

// Stats returns the server's figures.
func (s *PlanServer) Stats() PlanServerStats { return PlanServerStats{s.worker.Stats()} }

// Run takes requests until ctx ends. Then it finishes the calls under way, for up to Worker.DrainTimeout; the requests
// of those that are left go back to the queue, for other servers. It returns when every goroutine of the server has
// ended: nil, or what failed. It runs once: fence.ErrAlreadyRun.
func (s *PlanServer) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return alreadyRun("PlanServer")
	}
	if err := s.worlds.Enter(ctx); err != nil {
		return err
	}
	c := taskgroup.New(ctx, taskgroup.ForPart)
	if s.biller != nil { // it is stopped after the calls whose use it moves
		c.Start("billing", s.biller.Run)
	}
	c.Start("worker", func(ctx context.Context) error {
		if err := s.worker.Run(ctx); !errors.Is(err, plan.ErrDrained) {
			return err
		}
		return nil // the worker has said so, and nothing is lost
	})
	c.Start("conditions", s.conditions.Watch)
	c.Start("worlds", s.worlds.Watch)
	c.Start("health", func(ctx context.Context) error { return s.loop.Log(ctx, s.log, s.problems) })
	c.Wait(ctx)
	return c.Stop(taskgroup.StopBy(ctx, StopTimeout))
}

// Health says what is wrong with the slow calls.
func (s *PlanServer) Health() []Problem { return shown(s.problems()) }

func (s *PlanServer) problems() (all health.Problems) {
	s.conditions.Add(&all)
	s.worlds.Add(&all)
	st := s.worker.Stats()
	all.Trouble("plans", plansUnreached, 0, s.unreached.Lately(st.StoreFailures))
	// A call that fails now and then is tried again: a model that refuses all calls is none.
	failing, answering := s.failing.Lately(st.Failed), s.answering.Lately(st.Succeeded+st.NoSubject)
	if answering == 0 {
		all.Trouble("plans", "the slow calls fail, and none succeeds", 0, failing)
	}
	return all
}

const plansUnreached = "the store of plans is not reached: tiles go on without plans"

// planDesk is a tile server's desk, and what its health is judged by.
type planDesk struct {
	*plan.Desk
	lost health.Rising
}

// openPlans makes the desk of a server whose back ends have plans.
func (s *TileServer) openPlans(store plan.Store) error {
	if store == nil {
		return nil
	}
	submit := func(ctx context.Context, in tile.Intent) (tile.Result, error) { return s.host.Submit(ctx, in) }
	desk, err := plan.NewDesk(store, submit, s.cfg.Logger)
	if err == nil {
		s.plans = &planDesk{Desk: desk}
	}
	return err
}

func (d *planDesk) problems(all *health.Problems) {
	if d != nil {
		all.Trouble("plans", plansUnreached, 0, d.lost.Lately(d.Stats().TurnsLost))
	}
}
