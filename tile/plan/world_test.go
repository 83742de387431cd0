package plan_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
)

const (
	world fence.TileID = 0x85283083fffffff
	tick               = 50 * time.Millisecond
)

var quiet = slog.New(slog.DiscardHandler)

// squadron is a game of ships. In every tick, each that has no plan asks for one; its state is how often each ship got
// a plan.
type squadron struct {
	desk  func() *plan.Desk
	ships []string
	tier  plan.Tier
	words string
	gone  map[string]bool // plans for these are rejected

	mu    sync.Mutex
	plans map[string]int // by body
	ticks int
	slow  time.Duration // the longest Ask
}

func (s *squadron) Restore([]byte) error      { return nil }
func (s *squadron) Snapshot() ([]byte, error) { return nil, nil }

func (s *squadron) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks++
	for _, in := range intents {
		if s.gone[in.Actor] {
			outcomes = append(outcomes, stream.Rejected)
			continue
		}
		events, outcomes = append(events, []byte(in.ActionID)), append(outcomes, stream.Applied)
	}
	for _, ship := range s.ships {
		began := time.Now()
		if _, err := s.desk().Ask(plan.Request{Tile: world, Entity: ship, Tier: s.tier, Words: s.words}); err != nil {
			panic(err)
		}
		s.slow = max(s.slow, time.Since(began))
	}
	return events, outcomes
}

func (s *squadron) Apply(_ fence.Tick, events [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.plans[string(e)]++
	}
	return nil
}

// retire makes ships ask no more.
func (s *squadron) retire() {
	s.mu.Lock()
	s.ships = nil
	s.mu.Unlock()
}

// planned is how many plans there were; each must have come once.
func (s *squadron) planned(t *testing.T) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.plans {
		require.Equal(t, 1, n, "plan %s", id)
	}
	return len(s.plans)
}

// server is one process that owns the tile, with its desk.
type server struct {
	*squadron
	owner *tile.TileProcessor
	desk  *plan.Desk
	stop  func()
}

// arena is what servers share.
type arena struct {
	*testing.T
	seams tile.Seams
	plans plan.Store
	tick  time.Duration
}

func newArena(t *testing.T, plans plan.Store) *arena {
	store := memfence.New()
	return &arena{T: t, plans: plans, tick: tick, seams: tile.Seams{Authority: memfence.NewAuthority(), Store: store,
		Log: memstream.New(store)}}
}

// serve starts a server, which takes the tile. Of game, ships and tier are set.
func (a *arena) serve(contact string, game *squadron) *server {
	a.Helper()
	s := &server{squadron: game}
	game.plans = map[string]int{}
	var err error
	s.desk, err = plan.NewDesk(a.plans, func(ctx context.Context, in tile.Intent) (tile.Result, error) {
		return s.owner.Submit(ctx, in)
	}, quiet)
	require.NoError(a, err)
	game.desk = func() *plan.Desk { return s.desk }
	s.owner, err = tile.New(world, contact, a.seams, game, &tile.Config{TickInterval: a.tick, TakeOver: true,
		Hooks: s.desk.Hooks(tile.Hooks{}), Logger: quiet})
	require.NoError(a, err)
	s.stop = run(a.T, s.owner.Run, s.desk.Run)
	return s
}

// run runs parts until the test ends or they are stopped.
func run(t *testing.T, parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() { _ = part(ctx) }) // that another took over is no failure here
	}
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// work starts a worker.
func (a *arena) work(p plan.PlannerFunc, cfg *plan.WorkerConfig) (*plan.Worker, func()) {
	a.Helper()
	if cfg == nil {
		cfg = &plan.WorkerConfig{}
	}
	cfg.Logger = quiet
	w, err := plan.NewWorker(a.plans, p, cfg)
	require.NoError(a, err)
	return w, run(a.T, w.Run)
}

// takes is a planner that takes so long.
func takes(d time.Duration) plan.PlannerFunc {
	return func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
		select {
		case <-ctx.Done():
			return nil, plan.Usage{}, context.Cause(ctx)
		case <-time.After(d):
			return []byte(r.ID), plan.Usage{Model: "m", Input: 1}, nil
		}
	}
}

func ships(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("ship", i))
	}
	return names
}

// watched is a store that counts, and that can be broken.
type watched struct {
	plan.Store
	mu       sync.Mutex
	turns    int
	maxTurns int                                       // in one call
	broken   func(turns []plan.Turn) (do, answer bool) // nil: it is well
	deaf     bool                                      // it notifies no worker
	renews   map[int]bool                              // not empty: the only shards that answer renewals
}

func (w *watched) Renew(
	ctx context.Context, shard int, worker string, lease time.Duration, held []plan.Held,
) ([]string, error) {
	if len(w.renews) > 0 && !w.renews[shard] {
		<-ctx.Done()
		time.Sleep(time.Second)
		return nil, ctx.Err()
	}
	return w.Store.Renew(ctx, shard, worker, lease, held)
}

func (w *watched) Turn(ctx context.Context, shard int, turns []plan.Turn) []plan.TurnReply {
	w.mu.Lock()
	w.turns++
	w.maxTurns = max(w.maxTurns, len(turns))
	broken := w.broken
	w.mu.Unlock()
	do, answer := true, true
	if broken != nil {
		do, answer = broken(turns)
	}
	replies := make([]plan.TurnReply, len(turns))
	if do {
		replies = w.Store.Turn(ctx, shard, turns)
	}
	if !answer {
		for i := range replies {
			replies[i] = plan.TurnReply{Err: &fence.StoreError{Op: "turn", Outcome: fence.ErrUnknownOutcome,
				Err: context.DeadlineExceeded}}
		}
	}
	return replies
}

func (w *watched) Wake(ctx context.Context, heard func(int, plan.Tier)) error {
	if w.deaf {
		<-ctx.Done()
		return nil
	}
	return w.Store.Wake(ctx, heard)
}

func (w *watched) calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns
}
