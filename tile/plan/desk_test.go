package plan_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

// TestTheTickNeverWaits: the store hangs, and the tile ticks at its full rate.
func TestTheTickNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		hangs := &watched{Store: memplan.New(), broken: func([]plan.Turn) (bool, bool) {
			<-released
			return false, false
		}}
		s := newArena(t, hangs).serve("a:1", &squadron{ships: ships(1000), tier: plan.Background})
		time.Sleep(10 * time.Second)
		status := s.owner.Status()
		require.Zero(t, status.Missed)
		require.GreaterOrEqual(t, int(status.Tick), 10*int(time.Second/tick)-2)
		require.Zero(t, s.slow, "Ask does not wait")
		require.Equal(t, 1000, s.desk.Stats().Outstanding)
		close(released)
	})
}

// TestRoundTrips: two a second while something is outstanding, of a tile that ticks more often, ten while a player
// waits, and none otherwise. What a player asks for does not wait.
func TestRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memplan.New()}
		a := newArena(t, store)
		s := a.serve("a:1", &squadron{tier: plan.Background})
		time.Sleep(time.Minute)
		require.Equal(t, 1, store.calls(), "the first lists what is outstanding")

		s.mu.Lock()
		s.ships = ships(500)
		s.mu.Unlock()
		time.Sleep(20 * time.Second)
		require.InDelta(t, 45, store.calls(), 4, "500 entities wait")
		for i := range 20 { // whatever the moment
			time.Sleep(time.Second + time.Duration(i)*7*time.Millisecond)
			before := store.calls()
			asked, err := s.desk.Ask(plan.Request{Tile: world, Entity: fmt.Sprint("player", i), Tier: plan.Player})
			require.NoError(t, err)
			require.True(t, asked)
			time.Sleep(tick + time.Millisecond)
			require.Greater(t, store.calls(), before, "with the next tick")
		}
		before := store.calls()
		time.Sleep(20 * time.Second)
		require.InDelta(t, 200, store.calls()-before, 6, "players wait")

		a.work(takes(time.Second), &plan.WorkerConfig{Slots: 600})
		s.retire()
		time.Sleep(10 * time.Second)
		require.Equal(t, 500+20, s.planned(t))
		before = store.calls()
		time.Sleep(time.Minute)
		require.Equal(t, before, store.calls())
	})
}

// TestEveryShipIsPlanned: many ticks, many ships, workers of every speed; each plan comes once. It runs in real time:
// under synctest, so many timers crash the race detector's runtime now and then.
func TestEveryShipIsPlanned(t *testing.T) {
	a := newArena(t, memplan.New())
	s := a.serve("a:1", &squadron{ships: ships(20), tier: plan.Background})
	for _, d := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond} {
		a.work(takes(d), nil)
	}
	waittest.Until(t, func() bool { return s.planned(t) > 200 }, time.Minute, 10*time.Millisecond)
	s.retire()
	waittest.Until(t, func() bool { return s.desk.Stats().Outstanding == 0 }, time.Minute, 10*time.Millisecond)
	stats := s.desk.Stats()
	require.EqualValues(t, s.planned(t), stats.Applied)
	require.Equal(t, stats.Asked, stats.Applied)
}

// TestLostAnswers: calls of the store do nothing, or their answers are lost. No plan is lost and none comes twice.
func TestLostAnswers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		well := atomic.Bool{}
		store := &watched{Store: memplan.New()}
		store.broken = func([]plan.Turn) (do, answer bool) {
			store.mu.Lock()
			defer store.mu.Unlock()
			do = well.Load() || rng.IntN(3) > 0
			return do, do && (well.Load() || rng.IntN(3) > 0)
		}
		a := newArena(t, store)
		s := a.serve("a:1", &squadron{ships: ships(20), tier: plan.Player})
		w, _ := a.work(takes(300*time.Millisecond), &plan.WorkerConfig{Slots: 16})
		time.Sleep(time.Minute)
		s.retire()
		time.Sleep(10 * time.Second)
		well.Store(true)
		time.Sleep(10 * time.Second)
		stats := s.desk.Stats()
		require.EqualValues(t, stats.Applied, s.planned(t))
		require.Equal(t, w.Stats().Succeeded, stats.Applied, "every result was taken up")
		require.Greater(t, s.planned(t), 500)
		require.Zero(t, stats.Outstanding)
		require.NotZero(t, stats.TurnsLost)
	})
}

// TestTakeOver: another process takes the tile while requests wait, run, and are answered. It knows what its
// predecessor asked for, adopts what waits, drops what ran, and asks no entity twice.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		var calls atomic.Int64
		var busy atomic.Int64 // by entity there is at most one
		inFlight := make(map[string]*atomic.Int64)
		for _, s := range ships(8) {
			inFlight[s] = &atomic.Int64{}
		}
		a.work(func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			calls.Add(1)
			require.EqualValues(t, 1, inFlight[r.Entity].Add(1))
			defer inFlight[r.Entity].Add(-1)
			busy.Add(1)
			return takes(4*time.Second)(ctx, r)
		}, &plan.WorkerConfig{Slots: 5}) // four of them for the background
		one := a.serve("a:1", &squadron{ships: ships(8), tier: plan.Background})
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 4, calls.Load())
		two := a.serve("b:1", &squadron{ships: ships(8), tier: plan.Background})
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, tile.Serving, two.owner.Status().State)
		waiting := two.desk.Waiting(world)
		require.Len(t, waiting, 8)
		running := 0
		for _, r := range waiting {
			require.Greater(t, r.Age, 3*time.Second, "it knows since when")
			if r.Running {
				running++
			}
		}
		require.Equal(t, 4, running)
		require.Zero(t, two.desk.Stats().Asked)
		two.retire()
		time.Sleep(10 * time.Second)
		stats := two.desk.Stats()
		require.EqualValues(t, 4, stats.Stale, "what ran")
		require.EqualValues(t, 4, stats.Applied, "what waited")
		require.Equal(t, 4, two.planned(t))
		require.Zero(t, one.planned(t))
		require.EqualValues(t, 8, calls.Load())
		require.Zero(t, stats.Outstanding)
	})
}

// TestPausedOwner: an owner that does not know yet that it was replaced gets no answers, and removes none.
func TestPausedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		s := a.serve("a:1", &squadron{ships: ships(3), tier: plan.Background})
		time.Sleep(time.Second)
		shard := plan.ShardOf(world, a.plans.Shards())
		r := a.plans.Turn(t.Context(), shard, []plan.Turn{{Tile: world, Epoch: 100, List: true}})
		require.Len(t, r[0].Listed, 3)
		a.work(takes(0), nil)
		time.Sleep(10 * time.Second)
		require.Zero(t, s.planned(t))
		require.Zero(t, s.desk.Stats().Outstanding)
		require.Empty(t, s.desk.Tiles())
		r = a.plans.Turn(t.Context(), shard, []plan.Turn{{Tile: world, Epoch: 100}})
		require.Len(t, r[0].Answers, 3)
	})
}

// TestTheDead: plans of ships that are gone are dropped by the rules, and counted.
func TestTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		s := a.serve("a:1", &squadron{ships: ships(3), tier: plan.Background,
			gone: map[string]bool{"ship1": true}})
		a.work(takes(time.Second), nil)
		time.Sleep(900 * time.Millisecond)
		s.retire()
		time.Sleep(5 * time.Second)
		require.Equal(t, 2, s.planned(t))
		require.EqualValues(t, 1, s.desk.Stats().Refused)
	})
}

// TestEndsWithoutPlan: discarded, dead and expired requests free their entities, which ask again.
func TestEndsWithoutPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memplan.New()}
		a := newArena(t, store)
		s := a.serve("a:1", &squadron{ships: []string{"gone", "poison"}, tier: plan.Background})
		_, stop := a.work(func(_ context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			if r.Entity == "gone" {
				return nil, plan.Usage{}, plan.ErrNoSubject
			}
			return nil, plan.Usage{}, errors.New("no")
		}, nil)
		time.Sleep(2 * time.Minute) // a request that fails is a dead letter after 31 s at most
		s.retire()
		time.Sleep(time.Minute)
		stats := s.desk.Stats()
		require.Greater(t, stats.Discarded, uint64(5))
		require.Greater(t, stats.Died, uint64(1))
		require.Zero(t, stats.Outstanding)

		// No owner collects an answer for 30 s.
		stop()
		store.mu.Lock()
		store.broken = func([]plan.Turn) (bool, bool) { return false, false }
		store.mu.Unlock()
		shard := plan.ShardOf(world, store.Shards())
		a.work(takes(0), nil)
		store.Store.Turn(t.Context(), shard, []plan.Turn{{Tile: world, Epoch: 1,
			Ask: []plan.Request{{ID: "x", Tile: world, Entity: "late", Tier: plan.Player}}}})
		time.Sleep(plan.AnswerTTL + time.Second)
		store.mu.Lock()
		store.broken = nil
		store.mu.Unlock()
		_, err := s.desk.Ask(plan.Request{Tile: world, Entity: "late", Tier: plan.Background})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, s.desk.Stats().Expired)
	})
}

// TestThePlayersTurn: a player's request takes the place of one that waits, and follows one that runs. The words that
// count are the last.
func TestThePlayersTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		s := a.serve("a:1", &squadron{})
		time.Sleep(time.Second)
		ask := func(tier plan.Tier, words string) bool {
			asked, err := s.desk.Ask(plan.Request{Tile: world, Entity: "ship", Tier: tier, Words: words})
			require.NoError(t, err)
			return asked
		}
		heard := make(chan string, 10)
		require.True(t, ask(plan.Background, "roam"))
		require.False(t, ask(plan.Background, "roam"))
		time.Sleep(time.Second)
		require.True(t, ask(plan.Player, "flee"), "it waits")
		time.Sleep(time.Second)
		require.True(t, ask(plan.Player, "flee!"), "so does this one, of the same tier")
		_, stop := a.work(func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			heard <- r.Words
			return takes(2*time.Second)(ctx, r)
		}, nil)
		time.Sleep(time.Second)
		require.True(t, ask(plan.Player, "no, fight"), "it runs")
		require.True(t, ask(plan.Player, "no, hide"))
		time.Sleep(time.Minute)
		stop()
		close(heard)
		var all []string
		for words := range heard {
			all = append(all, words)
		}
		require.Equal(t, []string{"flee", "no, hide"}, all)
		require.Equal(t, 2, s.planned(t))
	})
}

// TestLostByTheStore: a failover has lost requests. The desk notices, and the ships ask again.
func TestLostByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fresh, lost := memplan.New(), atomic.Bool{}
		first := memplan.New()
		store := &replaced{Store: first, by: fresh, lost: &lost}
		a := newArena(t, store)
		s := a.serve("a:1", &squadron{ships: ships(10), tier: plan.Background})
		time.Sleep(time.Second)
		lost.Store(true)
		time.Sleep(time.Second)
		require.EqualValues(t, 10, s.desk.Stats().Missing)
		a.plans = fresh
		a.work(takes(time.Second), nil)
		s.retire()
		time.Sleep(10 * time.Second)
		require.Equal(t, 10, s.planned(t))
		require.Zero(t, s.desk.Stats().Outstanding)
	})
}

// replaced is a store whose turns go to another one once it is lost.
type replaced struct {
	plan.Store
	by   plan.Store
	lost *atomic.Bool
}

func (r *replaced) Turn(ctx context.Context, shard int, turns []plan.Turn) []plan.TurnReply {
	if r.lost.Load() {
		return r.by.Turn(ctx, shard, turns)
	}
	return r.Store.Turn(ctx, shard, turns)
}

// TestUndecided: the tile is overloaded for a while, and then not ours; the plan is submitted until that is known.
func TestUndecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memplan.New()
		answers := []error{tile.ErrOverloaded, &tile.UnresolvedError{Tile: world}, nil,
			&tile.RedirectError{Tile: world}}
		submitted := make(chan tile.Intent, 10)
		d, err := plan.NewDesk(store, func(_ context.Context, in tile.Intent) (tile.Result, error) {
			err := answers[len(submitted)]
			submitted <- in
			return tile.Result{Outcome: stream.Applied}, err
		}, nil)
		require.NoError(t, err)
		a := &arena{T: t, plans: store}
		a.work(takes(0), nil)
		run(t, d.Run)
		h := d.Hooks(tile.Hooks{})
		h.Transition(tile.TransitionInfo{Tile: world, To: tile.Serving, Epoch: 3})
		for _, entity := range []string{"one", "two"} {
			asked, err := d.Ask(plan.Request{Tile: world, Entity: entity, Tier: plan.Player})
			require.NoError(t, err)
			require.True(t, asked)
			for range 20 {
				h.Ticked(tile.TickInfo{Tile: world})
				time.Sleep(tick)
			}
		}
		require.EqualValues(t, 1, d.Stats().Applied)
		require.EqualValues(t, 1, d.Stats().Undecided)
		first := <-submitted
		for range 2 {
			require.Equal(t, first, <-submitted, "the same action")
		}
		require.Equal(t, "one", first.Actor)
		require.NoError(t, first.Validate())
		h.Transition(tile.TransitionInfo{Tile: world, To: tile.Stopped, Epoch: 3})
		asked, err := d.Ask(plan.Request{Tile: world, Entity: "one", Tier: plan.Player})
		require.NoError(t, err)
		require.False(t, asked)
		require.Empty(t, d.Waiting(world))
	})
}

func TestBadArguments(t *testing.T) {
	store := memplan.New()
	submit := func(context.Context, tile.Intent) (tile.Result, error) { return tile.Result{}, nil }
	_, err := plan.NewDesk(nil, submit, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = plan.NewDesk(store, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = plan.NewWorker(store, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	for _, cfg := range []plan.WorkerConfig{{Slots: -1}, {Slots: 5000}, {Lease: 1}, {HangAfter: -1},
		{DrainTimeout: -1}} {
		_, err = plan.NewWorker(store, takes(0), &cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, "%+v", cfg)
	}
	_, err = plan.NewBiller(store, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)

	d, err := plan.NewDesk(store, submit, nil)
	require.NoError(t, err)
	ok := plan.Request{Tile: world, Entity: "ship", Tier: plan.Player}
	for _, change := range []func(*plan.Request){
		func(r *plan.Request) { r.Tile = 0 }, func(r *plan.Request) { r.Entity = "" },
		func(r *plan.Request) { r.Requester = "a\n" }, func(r *plan.Request) { r.Tier = 3 },
		func(r *plan.Request) { r.Words = string(make([]byte, plan.MaxWords+1)) },
	} {
		r := ok
		change(&r)
		_, err := d.Ask(r)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, "%+v", r)
	}
}
