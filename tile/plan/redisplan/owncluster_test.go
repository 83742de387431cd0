package redisplan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// game is tiles whose ships ask for a plan whenever they have none, without the tiles: what a desk submits is taken.
type game struct {
	mu      sync.Mutex
	applied map[string]int // by action ID
	charged map[string]int // by request: how often billing was given its usage

	away, forgetful bool // billing fails; at once, or after it has stored, once
}

func (g *game) submit(_ context.Context, in tile.Intent) (tile.Result, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applied[in.ActionID]++
	return tile.Result{Outcome: stream.Applied}, nil
}

// Record implements plan.Sink as billing should: a request is charged once.
func (g *game) Record(_ context.Context, events []plan.UsageEvent) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away {
		return errors.New("billing is away")
	}
	for _, e := range events {
		g.charged[e.Request]++
	}
	if g.forgetful {
		g.forgetful = false
		return errors.New("the connection was lost")
	}
	return nil
}

const (
	failoverTiles = 24
	failoverShips = 5
)

// play ticks all tiles until ctx ends; the ships ask while asking.
func (g *game) play(ctx, asking context.Context, d *plan.Desk) {
	hooks := d.Hooks(tile.Hooks{})
	for id := range fence.TileID(failoverTiles) {
		hooks.Transition(tile.TransitionInfo{Tile: id + 1, To: tile.Serving, Epoch: 1})
	}
	for ctx.Err() == nil {
		for id := range fence.TileID(failoverTiles) {
			for ship := range failoverShips {
				if asking.Err() == nil {
					_, _ = d.Ask(plan.Request{Tile: id + 1, Entity: fmt.Sprint("ship", ship),
						Tier: plan.Tier(1 + ship%2)})
				}
			}
			hooks.Ticked(tile.TickInfo{Tile: id + 1})
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// start plays the game with a desk, two workers and billing until stop is called.
func (g *game) start(t *testing.T, s *redisplan.Store) (d *plan.Desk, silence, stop func()) {
	t.Helper()
	d, err := plan.NewDesk(s, g.submit, noLog)
	require.NoError(t, err)
	b, err := plan.NewBiller(s, g, noLog)
	require.NoError(t, err)
	asking, silence := context.WithCancel(t.Context())
	parts := []func(context.Context) error{d.Run, b.Run, func(ctx context.Context) error {
		g.play(ctx, asking, d)
		return nil
	}}
	planner := func(ctx context.Context, _ plan.Request) ([]byte, plan.Usage, error) {
		time.Sleep(50 * time.Millisecond)
		return []byte("plan"), plan.Usage{Model: "m", Input: 1}, ctx.Err()
	}
	for range 2 {
		w, err := plan.NewWorker(s, plan.PlannerFunc(planner),
			&plan.WorkerConfig{Slots: 32, Lease: 2 * time.Second, Logger: noLog})
		require.NoError(t, err)
		parts = append(parts, w.Run)
	}
	stop = start(parts...)
	t.Cleanup(stop)
	return d, silence, stop
}

// count is how many plans were taken up.
func (g *game) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.applied)
}

// end waits until all requests are answered and all usage is billed, and stops the game.
func (g *game) end(t *testing.T, s *redisplan.Store, d *plan.Desk, stop func()) {
	t.Helper()
	waittest.Until(t, func() bool { return d.Stats().Outstanding == 0 }, time.Minute, 50*time.Millisecond,
		"everything ends: %+v", d.Stats())
	for shard := range s.Shards() {
		waittest.Until(t, func() bool {
			depth, err := s.Depth(t.Context(), shard)
			return err == nil && depth.Busy == 0 && depth.Usage == 0 && depth.Players+depth.Background == 0
		}, time.Minute, 50*time.Millisecond, "shard %d", shard)
	}
	stop()
}

// TestBillingIsAway: while billing does not answer, plans are made and taken up as before and their usage events wait.
// When it is back, and does not get every answer through, each request is charged once.
func TestBillingIsAway(t *testing.T) {
	t.Parallel()
	s := open(t, stacktest.Redis(t))
	g := &game{applied: map[string]int{}, charged: map[string]int{}, away: true}
	d, silence, stop := g.start(t, s)
	waittest.Until(t, func() bool { return g.count() > 2000 }, time.Minute, 10*time.Millisecond)
	waiting := 0
	for shard := range s.Shards() {
		depth, err := s.Depth(t.Context(), shard)
		require.NoError(t, err)
		waiting += depth.Usage
	}
	require.GreaterOrEqual(t, waiting, 2000)
	g.mu.Lock()
	require.Empty(t, g.charged)
	g.away, g.forgetful = false, true
	g.mu.Unlock()
	silence()
	g.end(t, s, d, stop)
	again := 0
	for action := range g.applied {
		require.Positive(t, g.charged[strings.TrimPrefix(action, "plan-")], action)
	}
	for _, n := range g.charged {
		again += n - 1
	}
	require.Positive(t, again, "billing has stored events, and said that it had not")
}

// TestFailover: the master of a shard is killed, another one paused until it is replaced, and the functions are
// flushed, while owners ask and workers work. No plan is taken up twice, nothing stays in progress, and what was taken
// up was charged once.
func TestFailover(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	s := open(t, stack.CoordAddrs)
	g := &game{applied: map[string]int{}, charged: map[string]int{}}
	d, silence, stop := g.start(t, s)

	progress := func(why string) { // in every shard, which is why it takes so many
		t.Helper()
		before := g.count()
		waittest.Until(t, func() bool { return g.count() > before+1000 }, time.Minute, 10*time.Millisecond, why)
	}
	progress("at first")
	masters := mastersOf(t, s, stack)
	began := time.Now()
	require.NoError(t, masters[0].Signal(syscall.SIGKILL))
	progress("a master was killed")
	require.NoError(t, masters[1].Signal(devstack.Pause))
	time.Sleep(5 * time.Second)
	require.NoError(t, masters[1].Signal(devstack.GoOn))
	progress("a master was paused until it was replaced")
	t.Logf("after %v", time.Since(began).Round(time.Millisecond))
	waittest.Until(t, func() bool { // while the former masters come back as replicas
		return newClient(t, stack.CoordAddrs).ForEachMaster(t.Context(),
			func(ctx context.Context, node *redis.Client) error { return node.FunctionFlush(ctx).Err() }) == nil
	}, time.Minute, 100*time.Millisecond)
	progress("the functions were flushed")

	silence()
	g.end(t, s, d, stop)
	g.judge(t, d.Stats())
}

// judge looks at what was applied and charged.
func (g *game) judge(t *testing.T, stats plan.DeskStats) {
	uncharged, again := 0, 0
	for action, n := range g.applied {
		require.Equal(t, 1, n, "%s was taken up more than once", action)
		if g.charged[strings.TrimPrefix(action, "plan-")] == 0 {
			uncharged++
		}
	}
	for _, n := range g.charged {
		again += n - 1
	}
	t.Logf("%d plans applied; of those uncharged: %d; events given twice: %d; %+v",
		len(g.applied), uncharged, again, stats)
	// A master that was paused does a little more before it knows that it was replaced, receipts included.
	require.LessOrEqual(t, uncharged, 2)
}

// mastersOf is the processes of two masters that have shards.
func mastersOf(t *testing.T, s *redisplan.Store, stack *devstack.Stack) (all []*devstack.Process) {
	t.Helper()
	client := newClient(t, stack.CoordAddrs)
	seen := map[string]bool{}
	for shard := range s.Shards() {
		node, err := client.MasterForKey(t.Context(), s.Key(shard))
		require.NoError(t, err)
		addr := node.Options().Addr
		for _, p := range stack.Processes() {
			if p.Addr() == addr && !seen[addr] {
				seen[addr] = true
				all = append(all, p)
			}
		}
	}
	require.GreaterOrEqual(t, len(all), 2)
	return all
}
