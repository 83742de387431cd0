package redisplan_test

import (
	"context"
	"fmt"
	"log/slog"
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
	charged map[string]int // by request
}

func (g *game) submit(_ context.Context, in tile.Intent) (stream.Outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applied[in.ActionID]++
	return stream.Applied, nil
}

// Record implements plan.Sink as billing should: a request is charged once.
func (g *game) Record(_ context.Context, events []plan.UsageEvent) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range events {
		g.charged[e.Request]++
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

// TestFailover: the master of a shard is killed, another one paused until it is replaced, and the functions are
// flushed, while owners ask and workers work. No plan is taken up twice, nothing stays in progress, and what was taken
// up was charged once.
func TestFailover(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	s := open(t, stack.CoordAddrs)
	quiet := slog.New(slog.DiscardHandler)
	g := &game{applied: map[string]int{}, charged: map[string]int{}}
	d, err := plan.NewDesk(s, g.submit, &plan.DeskConfig{Logger: quiet})
	require.NoError(t, err)
	b, err := plan.NewBiller(s, g, &plan.BillerConfig{Every: 50 * time.Millisecond, Logger: quiet})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	asking, silence := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { g.play(ctx, asking, d) })
	planner := func(ctx context.Context, _ plan.Request) ([]byte, plan.Usage, error) {
		time.Sleep(50 * time.Millisecond)
		return []byte("plan"), plan.Usage{Model: "m", Input: 1}, ctx.Err()
	}
	for range 2 {
		w, err := plan.NewWorker(s, plan.PlannerFunc(planner),
			&plan.WorkerConfig{Slots: 32, Lease: 2 * time.Second, Logger: quiet})
		require.NoError(t, err)
		all.Go(func() { _ = w.Run(ctx) })
	}
	all.Go(func() { _ = d.Run(ctx) })
	all.Go(func() { _ = b.Run(ctx) })

	count := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.applied)
	}
	progress := func(why string) { // in every shard, which is why it takes so many
		t.Helper()
		before := count()
		waittest.Until(t, func() bool { return count() > before+1000 }, time.Minute, 10*time.Millisecond, why)
	}
	progress("at first")
	masters := mastersOf(t, s, stack)
	began := time.Now()
	require.NoError(t, masters[0].Signal(syscall.SIGKILL))
	progress("a master was killed")
	require.NoError(t, masters[1].Signal(syscall.SIGSTOP))
	time.Sleep(5 * time.Second)
	require.NoError(t, masters[1].Signal(syscall.SIGCONT))
	progress("a master was paused until it was replaced")
	t.Logf("after %v", time.Since(began).Round(time.Millisecond))
	waittest.Until(t, func() bool { // while the former masters come back as replicas
		return newClient(t, stack.CoordAddrs).ForEachMaster(t.Context(),
			func(ctx context.Context, node *redis.Client) error { return node.FunctionFlush(ctx).Err() }) == nil
	}, time.Minute, 100*time.Millisecond)
	progress("the functions were flushed")

	silence()
	waittest.Until(t, func() bool { return d.Stats().Outstanding == 0 }, time.Minute, 50*time.Millisecond,
		"everything ends: %+v", d.Stats())
	for shard := range s.Shards() {
		waittest.Until(t, func() bool {
			depth, err := s.Depth(t.Context(), shard)
			return err == nil && depth.Busy == 0 && depth.Usage == 0 && depth.Players+depth.Background == 0
		}, time.Minute, 50*time.Millisecond, "shard %d", shard)
	}
	stop()
	all.Wait()
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
