package tilefence_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// sleeper is a bell whose Resolve does not return when the body of an intent is "hang".
type sleeper struct {
	bell
	hangs *atomic.Int64
	over  chan struct{}
}

func (s *sleeper) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	for i := range intents {
		if string(intents[i].Body) == "hang" {
			s.hangs.Add(1)
			<-s.over
		}
	}
	return s.bell.Resolve(tick, intents)
}

// TestRulesThatHang: an action with which Resolve does not return costs one process one goroutine. Health and log name
// the tile and the intent, the process's other tiles tick on, the action is rejected for good, also at the next owner,
// and the tile is served again.
func TestRulesThatHang(t *testing.T) {
	for name, together := range map[string]bool{"alone": false, "beside others": true} {
		t.Run(name, func(t *testing.T) {
			b := embedded(t)
			var hangs atomic.Int64
			over := make(chan struct{})
			log, written := logged()
			newRules := func(fence.TileID) (tile.Rules, error) { return &sleeper{hangs: &hangs, over: over}, nil }
			var servers []*tilefence.TileServer
			for range 2 {
				l := listen(t)
				cfg := &tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}, Logger: log}
				cfg.Host.Tile.TickInterval = 20 * time.Millisecond
				cfg.Host.Tile.RulesTimeout = 4 * time.Second
				s, err := tilefence.NewTileServer(l.Addr().String(), b, newRules, cfg)
				require.NoError(t, err)
				start(t, s)
				servers = append(servers, s)
			}
			t.Cleanup(sync.OnceFunc(func() { close(over) })) // before the servers stop
			owner, other := servers[0], servers[1]
			require.NoError(t, owner.Own(plaza, harbour))
			await(t, owner, plaza)
			await(t, owner, harbour)
			require.NoError(t, other.Follow(plaza))
			follows(t, other, plaza)
			gate := listen(t)
			gateway, err := tilefence.NewGatewayServer(gate.Addr().String(), b, anybody, free,
				&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: gate}})
			require.NoError(t, err)
			start(t, gateway)

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			act := func(id, body string) stream.Outcome {
				for ctx.Err() == nil { // as a client repeats an action that is pending
					art, err := gateway.Gateway().Act(ctx, admission.Action{ID: id, Actor: "ann", Asset: "coin",
						Tile: plaza, Body: []byte(body)})
					if err == nil {
						return art.Outcome
					}
					time.Sleep(250 * time.Millisecond)
				}
				return 0
			}
			outcome := make(chan stream.Outcome, 1)
			go func() { outcome <- act("a-hang", "hang") }()
			waittest.Until(t, func() bool { return hangs.Load() > 0 }, 20*time.Second, time.Millisecond)
			before := ticks(owner, harbour)
			becomes(t, owner, "rules: ", plaza.String(), "a-hang", "does not return")
			assert.Positive(t, written.count("the game's rules do not return"))
			waittest.Until(t, func() bool { return ticks(owner, harbour) > before+20 }, 20*time.Second,
				time.Millisecond)
			if together {
				var all sync.WaitGroup // they come while no process resolves, and wait for one
				for _, id := range []string{"a-1", "a-2"} {
					all.Go(func() { assert.Equal(t, stream.Applied, act(id, "")) })
				}
				all.Wait()
			}
			assert.Equal(t, stream.Rejected, <-outcome)
			assert.EqualValues(t, 1, hangs.Load(), "no other process has met it")
			assert.Equal(t, stream.Applied, act("a-next", ""), "the tile is served again")
			assert.Equal(t, stream.Rejected, act("a-hang", "hang"), "it has one outcome")
			g, err := b.Authority.Lookup(ctx, plaza)
			require.NoError(t, err)
			assert.Greater(t, g.Epoch, fence.Epoch(1), "under another epoch")
			assert.Equal(t, tile.Serving, state(owner, harbour))
		})
	}
}

// ticks is how far a tile of a server is.
func ticks(s *tilefence.TileServer, id fence.TileID) fence.Tick {
	status, _ := s.Host().TileStatus(id)
	return status.Tick
}
