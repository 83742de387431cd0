package tilefence_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// clock is a bell that rings at each tick.
type clock struct{ bell }

func (c *clock) Resolve(t fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	events, outcomes := c.bell.Resolve(t, intents)
	return append(events, []byte("tick")), outcomes
}

// TestAForgottenBridgeIsSaid, and a forgotten checkpointer: without them a game plays, but late, and loses more.
func TestAForgottenBridgeIsSaid(t *testing.T) {
	t.Parallel()
	b, l, view := embedded(t), listen(t), listen(t)
	cfg := &tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}}
	cfg.Host.Tile.TickInterval = 20 * time.Millisecond
	s, err := tilefence.NewTileServer(l.Addr().String(), b,
		func(fence.TileID) (tile.Rules, error) { return new(clock), nil }, cfg)
	require.NoError(t, err)
	s.SetPatience(time.Second)
	require.NoError(t, s.Own(plaza))
	start(t, s)
	await(t, s, plaza)
	mayWatch := func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
	r, err := tilefence.NewRelayServer(view.Addr().String(), b, mayWatch, &tilefence.RelayServerConfig{
		Web: tilefence.Web{Listener: view}, Relay: relay.Config{CheckInterval: 100 * time.Millisecond}})
	require.NoError(t, err)
	start(t, r)
	watcher, err := relayclient.Dial(t.Context(), "ws://"+view.Addr().String(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close() })
	require.NoError(t, watcher.Subscribe(t.Context(), plaza))

	becomes(t, s, "TileServer: delivery: no bridge forwards", "TileServer: checkpoints: no checkpointer copies")
	becomes(t, r, "RelayServer: views: no frames arrive")

	bridge, err := tilefence.NewBridgeServer(b, nil)
	require.NoError(t, err)
	start(t, bridge)
	checkpointer, err := tilefence.NewCheckpointServer(b, nil)
	require.NoError(t, err)
	start(t, checkpointer)
	becomes(t, s)
	becomes(t, r)
}
