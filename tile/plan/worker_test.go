package plan_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

// queue leaves requests of one tile.
func (a *arena) queue(id fence.TileID, tier plan.Tier, names ...string) {
	a.Helper()
	turn := plan.Turn{Tile: id, Epoch: 1}
	for _, name := range names {
		turn.Ask = append(turn.Ask, plan.Request{ID: fmt.Sprint(id, "-", name), Tile: id, Entity: name, Tier: tier,
			Words: name})
	}
	r := a.plans.Turn(a.Context(), plan.ShardOf(id, a.plans.Shards()), []plan.Turn{turn})[0]
	require.NoError(a, r.Err)
	for _, asked := range r.Asked {
		require.True(a, asked.Taken)
	}
}

// answer is the answer for an entity of a tile, or nil.
func (a *arena) answer(id fence.TileID, name string) *plan.Answer {
	a.Helper()
	r := a.plans.Turn(a.Context(), plan.ShardOf(id, a.plans.Shards()), []plan.Turn{{Tile: id, Epoch: 1, List: true}})[0]
	require.NoError(a, r.Err)
	for i := range r.Answers {
		if r.Answers[i].Entity == name {
			return &r.Answers[i]
		}
	}
	return nil
}

// TestSlots: at most so many calls at once; one of four is for players, and is free for them however long the others
// take.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		var running, most atomic.Int64
		began := sync.Map{}
		a.work(func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			began.Store(r.Entity, time.Now())
			return takes(30*time.Second)(ctx, r)
		}, nil)
		for i := range fence.TileID(10) { // in all shards
			a.queue(100+i, plan.Background, ships(20)...)
		}
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 3, running.Load())
		at := time.Now()
		a.queue(105, plan.Player, "ann")
		synctest.Wait()
		when, ok := began.Load("ann")
		require.True(t, ok, "picked up at once")
		require.Equal(t, at, when)
		a.queue(106, plan.Player, "bob")
		time.Sleep(21 * time.Second)
		_, ok = began.Load("bob")
		require.True(t, ok, "before all that waited longer")
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 4, most.Load())
	})
}

// TestTheBackgroundIsNotStarved: players ask without end, in the same shard and in others; one slot in eight goes to
// the background.
func TestTheBackgroundIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		var players, background atomic.Int64
		a.work(func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			if r.Tier == plan.Player {
				players.Add(1)
			} else {
				background.Add(1)
			}
			return takes(time.Second)(ctx, r)
		}, nil)
		for i := range fence.TileID(8) {
			a.queue(100+i, plan.Player, ships(256)...)
			a.queue(200+i, plan.Background, ships(100)...)
		}
		time.Sleep(200 * time.Second)
		require.InDelta(t, 800, players.Load()+background.Load(), 20)
		require.Greater(t, background.Load(), int64(60))
		require.Greater(t, players.Load(), 6*background.Load())
	})
}

// TestHangs: a call that reports no progress is cancelled and its request run again; one that reports some goes on.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		w, _ := a.work(func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			switch {
			case r.Entity == "hangs" && r.Attempt == 1:
				<-ctx.Done()
				return nil, plan.Usage{}, ctx.Err()
			case r.Entity == "streams":
				for range 30 {
					time.Sleep(50 * time.Second)
					plan.Progress(ctx)
				}
				return []byte("long"), plan.Usage{}, ctx.Err()
			}
			return []byte(r.Entity), plan.Usage{}, nil
		}, nil)
		a.queue(1, plan.Background, "hangs", "streams")
		time.Sleep(59 * time.Second)
		require.Equal(t, 2, w.Stats().Running)
		time.Sleep(4 * time.Second)
		require.NotNil(t, a.answer(1, "hangs"))
		require.EqualValues(t, 1, w.Stats().Hung)
		time.Sleep(24 * time.Minute)
		require.Equal(t, plan.Planned, a.answer(1, "streams").Kind)
		require.EqualValues(t, 1, w.Stats().Hung)
	})
}

// TestDeafToItsContext: a planner that goes on after it was cancelled loses its claim all the same, and its result is
// refused.
func TestDeafToItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		w, _ := a.work(func(_ context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			if r.Attempt == 1 {
				time.Sleep(10 * time.Minute)
				return []byte("late"), plan.Usage{Model: "m"}, nil
			}
			return []byte("again"), plan.Usage{Model: "m"}, nil
		}, nil)
		a.queue(1, plan.Background, "ship")
		time.Sleep(80 * time.Second) // 60 s, a lease and a poll
		require.Equal(t, "again", string(a.answer(1, "ship").Body))
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 1, w.Stats().Lost)
		events, err := a.plans.Usage(t.Context(), plan.ShardOf(1, a.plans.Shards()), "", 10)
		require.NoError(t, err)
		require.Len(t, events, 1)
	})
}

// TestDeafPlannersKeepTheirSlots: a worker that claims a request again, whose first call still runs, has no more calls
// than slots.
func TestDeafPlannersKeepTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		var running, most atomic.Int64
		w, _ := a.work(func(context.Context, plan.Request) ([]byte, plan.Usage, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(10 * time.Minute)
			return nil, plan.Usage{}, errors.New("too late")
		}, nil)
		a.queue(1, plan.Player, "ann", "bob")
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 4, most.Load(), "each is called twice")
		require.Equal(t, 4, w.Stats().Running)
		time.Sleep(2 * time.Hour)
		require.EqualValues(t, 4, most.Load())
		require.Zero(t, w.Stats().Running, "the attempts are used up")
	})
}

// TestAHungShardCostsNoOthersClaims: the worker renews the claims of a shard whatever the others do.
func TestAHungShardCostsNoOthersClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memplan.New(), renews: map[int]bool{}}
		a := newArena(t, store)
		tiles := map[int]fence.TileID{} // one of each shard
		for id := fence.TileID(1); len(tiles) < store.Shards(); id++ {
			tiles[plan.ShardOf(id, store.Shards())] = id
		}
		one, _ := a.work(takes(50*time.Second), &plan.WorkerConfig{Slots: 8})
		for _, id := range tiles {
			a.queue(id, plan.Player, "ship")
		}
		synctest.Wait()
		require.Equal(t, store.Shards(), one.Stats().Running)
		store.renews[3] = true // only shard 3 answers
		a.work(takes(50*time.Second), &plan.WorkerConfig{Slots: 8})
		time.Sleep(51 * time.Second)
		require.EqualValues(t, 1, one.Stats().Succeeded)
		require.Equal(t, plan.Planned, a.answer(tiles[3], "ship").Kind)
	})
}

// TestFailures: errors, panics and plans that are too large are failed attempts; the last makes a dead letter.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		var pauses []time.Duration
		var last time.Time
		w, _ := a.work(func(_ context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			switch r.Entity {
			case "panics":
				panic("bug")
			case "large":
				return make([]byte, plan.MaxBody+1), plan.Usage{}, nil
			case "negative":
				return nil, plan.Usage{Model: "m", Input: -1}, nil
			}
			if !last.IsZero() {
				pauses = append(pauses, time.Since(last))
			}
			last = time.Now()
			return nil, plan.Usage{}, errors.New("overloaded")
		}, nil)
		a.queue(1, plan.Background, "fails", "panics", "large", "negative")
		time.Sleep(3 * time.Minute)
		letters, err := a.plans.Letters(t.Context(), plan.ShardOf(1, a.plans.Shards()))
		require.NoError(t, err)
		why := map[string]string{}
		for _, l := range letters {
			why[l.Request.Entity] = l.Error
			require.Equal(t, 5, l.Request.Attempt)
		}
		require.Len(t, why, 4)
		require.Equal(t, "overloaded", why["fails"])
		require.Contains(t, why["panics"], "bug")
		require.Contains(t, why["large"], "4097 bytes")
		require.Contains(t, why["negative"], "tokens")
		require.EqualValues(t, 20, w.Stats().Failed)
		require.Len(t, pauses, 4)
		for i, p := range pauses { // each is drawn from the whole range, and a poll notices when it is over
			require.LessOrEqual(t, p, time.Second<<i+1100*time.Millisecond)
		}
	})
}

// TestLostNotification: no worker hears of requests, and each is picked up with the next poll.
func TestLostNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, &watched{Store: memplan.New(), deaf: true})
		a.work(takes(0), nil)
		for i := range fence.TileID(20) {
			time.Sleep(130 * time.Millisecond)
			a.queue(100+i, plan.Player, "ship")
			time.Sleep(time.Second)
			synctest.Wait()
			require.NotNil(t, a.answer(100+i, "ship"))
		}
	})
}

// TestDrain: a worker that ends takes nothing more, and finishes what runs; it says where it stands. What has not ended
// in time is run by another worker, at once.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		planner := plan.PlannerFunc(func(ctx context.Context, r plan.Request) ([]byte, plan.Usage, error) {
			if r.Entity == "long" {
				return takes(10*time.Minute)(ctx, r)
			}
			return takes(30*time.Second)(ctx, r)
		})
		for _, c := range []struct {
			entity  string
			reports int
			err     error
			took    time.Duration
		}{{"short", 6, nil, 30 * time.Second}, {"long", 12, plan.ErrDrained, time.Minute}} {
			var log bytes.Buffer
			ctx, stop := context.WithCancel(t.Context())
			w, err := plan.NewWorker(a.plans, planner, &plan.WorkerConfig{HangAfter: time.Hour,
				Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			a.queue(1, plan.Player, c.entity)
			synctest.Wait()
			require.NotZero(t, w.Stats().Running)
			stop()
			a.queue(2, plan.Player, c.entity)
			began := time.Now()
			err = <-done
			require.ErrorIs(t, err, c.err)
			require.InDelta(t, c.took.Seconds(), time.Since(began).Seconds(), 0.1)
			require.InDelta(t, c.reports, bytes.Count(log.Bytes(), []byte("worker drains")), 1)
			require.ErrorIs(t, w.Run(t.Context()), fence.ErrAlreadyRun)
			if c.err == nil {
				require.Equal(t, plan.Planned, a.answer(1, c.entity).Kind)
			}
		}
		other, _ := a.work(takes(0), nil)
		time.Sleep(1100 * time.Millisecond) // a poll
		require.NotNil(t, a.answer(1, "long"), "it does not wait for the lease")
		require.NotNil(t, a.answer(2, "short"))
		require.EqualValues(t, 2, other.Stats().Succeeded)
	})
}

// TestRenewed: a call that takes longer than the lease keeps its claim.
func TestRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, memplan.New())
		one, _ := a.work(takes(50*time.Second), nil)
		two, _ := a.work(takes(50*time.Second), nil)
		a.queue(1, plan.Background, ships(4)...)
		time.Sleep(55 * time.Second)
		require.EqualValues(t, 4, one.Stats().Succeeded+two.Stats().Succeeded)
		require.EqualValues(t, 4, one.Stats().Claimed+two.Stats().Claimed)
	})
}
