package tile_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// sleeper notes for how long its tile has slept whenever an intent asks, and at each tick.
type sleeper struct {
	ledgerRules
	mu      sync.Mutex
	elapsed []time.Duration
}

func (s *sleeper) said() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.elapsed)
}

func (s *sleeper) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	s.mu.Lock()
	s.elapsed = append(s.elapsed, in.Elapsed)
	s.mu.Unlock()
	for _, i := range in.Intents {
		out.Events = append(out.Events, i.Body)
		out.Decide(stream.Applied, "")
	}
	return out
}

// TestRulesLearnHowLongTheirTileSlept: nothing at first, a tick interval as a rule, and all the time that no tick was
// played: between two owners, and while the store takes nothing. A tick that is given up counts as not played.
func TestRulesLearnHowLongTheirTileSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, slack = 500 * time.Millisecond, 10 * time.Second
		w, down := newWorld(t), &atomic.Bool{}
		call := func(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
			if c.Write && down.Load() {
				return &fence.StoreError{Op: c.Op, Tile: testTile, Outcome: fence.ErrNotApplied,
					Err: errors.New("down")}
			}
			return do(ctx)
		}
		seams := tile.Seams{Authority: intercept.AuthorityOf(w.authority, call),
			Store: intercept.StoreOf(w.store, call), Log: intercept.LogOf(w.log, call)}
		start := func(contact string) (*runner, *sleeper) {
			rules := &sleeper{}
			p, err := tile.New(testTile, contact, seams, rules, &tile.Config{TickInterval: interval, TakeOver: true})
			require.NoError(t, err)
			r := launch(t, p, nil)
			r.say(t, "", "a")
			return r, rules
		}
		first, rules := start("a:1")
		time.Sleep(5 * interval)
		require.NoError(t, first.drain())
		assert.Zero(t, rules.said()[0])
		for _, e := range rules.said()[1:] {
			assert.InDelta(t, interval, e, float64(interval))
		}

		time.Sleep(3 * time.Hour)
		second, rules := start("b:1")
		time.Sleep(4 * interval)
		assert.InDelta(t, 3*time.Hour, rules.said()[0], float64(slack))
		assert.InDelta(t, interval, rules.said()[1], float64(interval))

		down.Store(true) // it is killed
		second.stop()
		<-second.done
		down.Store(false)
		time.Sleep(5 * time.Hour)
		third, rules := start("c:1")
		assert.InDelta(t, 5*time.Hour, rules.said()[0], float64(slack))
		n := len(rules.said())
		answered := submit(third.TileProcessor, "", "frozen")
		down.Store(true)
		time.Sleep(time.Minute)
		down.Store(false)
		require.NoError(t, <-answered)
		time.Sleep(4 * interval)
		require.NoError(t, third.drain())
		longest := time.Duration(0)
		for _, e := range rules.said()[n:] {
			longest = max(longest, e)
		}
		assert.InDelta(t, time.Minute, longest, float64(slack))
	})
}
