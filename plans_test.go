package tilefence_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

// bills is a sink.
type bills struct {
	mu  sync.Mutex
	all map[string]plan.Usage
}

func (b *bills) Record(_ context.Context, events []plan.UsageEvent) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		b.all[e.Request] = e.Usage
	}
	return nil
}

func (b *bills) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all)
}

// TestAPlanForATile: a tile asks, a plan server calls the slow function, the plan comes back as an intent, and the call
// is billed. A function that always fails is a problem, and one that answers again is none.
func TestAPlanForATile(t *testing.T) {
	b := embedded(t)
	b.Plans = memplan.New()
	tiles := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, tiles.Own(plaza))
	start(t, tiles)
	await(t, tiles, plaza)
	var fails atomic.Bool
	bill := &bills{all: map[string]plan.Usage{}}
	server, err := tilefence.NewPlanServer(b, plan.PlannerFunc(
		func(context.Context, plan.Request) ([]byte, plan.Usage, error) {
			if fails.Load() {
				return nil, plan.Usage{}, errors.New("no model")
			}
			return []byte("ring"), plan.Usage{Model: "m", Input: 1}, nil
		}), &tilefence.PlanServerConfig{Sink: bill})
	require.NoError(t, err)
	running := start(t, server)

	require.Nil(t, tileServer(t, embedded(t), tilefence.TileServerConfig{}).Plans())
	request := plan.Request{Tile: plaza, Entity: "bell", Requester: "ann", Tier: plan.Player, Words: "ring"}
	asked, err := tiles.Plans().Ask(request)
	require.NoError(t, err)
	require.True(t, asked)
	waittest.Until(t, func() bool { return tiles.Plans().Stats().Applied == 1 && bill.count() == 1 }, 20*time.Second,
		10*time.Millisecond)
	require.EqualValues(t, 1, server.Stats().Worker.Succeeded)
	require.Empty(t, server.Health())

	fails.Store(true)
	waittest.Until(t, func() bool {
		for i := range 8 { // as many as keep failing for longer than a failover takes
			r := request
			r.Entity = string(rune('a' + i))
			_, err := tiles.Plans().Ask(r)
			require.NoError(t, err)
		}
		all := server.Health()
		return len(all) == 1 && all[0].Plane == "plans" && all[0].What == "the slow calls fail, and none succeeds"
	}, 30*time.Second, 50*time.Millisecond)
	fails.Store(false)
	waittest.Until(t, func() bool { return len(server.Health()) == 0 }, time.Minute, 50*time.Millisecond)
	require.NoError(t, running.stop())
}

// awayPlans is a store that answers no worker and no desk.
type awayPlans struct{ plan.Store }

func (awayPlans) Claim(context.Context, int, plan.Claim) (plan.Claimed, error) {
	return plan.Claimed{}, errAway
}

func (awayPlans) Turn(_ context.Context, _ int, turns []plan.Turn) []plan.TurnReply {
	replies := make([]plan.TurnReply, len(turns))
	for i := range replies {
		replies[i].Err = errAway
	}
	return replies
}

// TestPlansThatAreAway: tile server and plan server say so.
func TestPlansThatAreAway(t *testing.T) {
	b := embedded(t)
	b.Plans = awayPlans{memplan.New()}
	tiles := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, tiles.Own(plaza))
	start(t, tiles)
	await(t, tiles, plaza)
	server, err := tilefence.NewPlanServer(b, plan.PlannerFunc(
		func(context.Context, plan.Request) ([]byte, plan.Usage, error) { return nil, plan.Usage{}, errAway }), nil)
	require.NoError(t, err)
	start(t, server)
	_, err = tiles.Plans().Ask(plan.Request{Tile: plaza, Entity: "bell", Requester: "ann", Tier: plan.Player})
	require.NoError(t, err)
	for _, s := range []tilefence.Healthy{server, tiles} {
		waittest.Until(t, func() bool {
			all := s.Health()
			return len(all) == 1 && all[0].Plane == "plans" &&
				all[0].What == "the store of plans is not reached: tiles go on without plans"
		}, 20*time.Second, 50*time.Millisecond)
	}
}
