package players

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// TestBotsKeepPace: a bot plays at the pace that its tile announces, and at the usual one again.
func TestBotsKeepPace(t *testing.T) {
	world, err := game.World(1)
	require.NoError(t, err)
	ground, err := game.GroundOf(world[0], nil)
	require.NoError(t, err)
	rules, err := game.NewRules(ground)
	require.NoError(t, err)
	b, err := newBot(0, 1, &seas{tiles: world}, &Config{Tick: 100 * time.Millisecond, DrawEvery: 10,
		Measures: NewMeasures()})
	require.NoError(t, err)
	view, err := game.NewView(ground)
	require.NoError(t, err)
	w := &watched{ground: ground, view: view}
	b.tiles[world[0]] = w
	interval := func() time.Duration {
		_, _, every := b.decide(1)
		return every
	}
	assert.Equal(t, 100*time.Millisecond, interval())
	for _, pace := range []float64{2, 1} {
		payload, _, err := (&stream.Batch{Events: [][]byte{rules.Dilated(pace)}}).Encode()
		require.NoError(t, err)
		b.onFrame(fence.Entry{Tile: world[0], Payload: payload})
		require.NoError(t, w.broken)
		assert.Equal(t, time.Duration(pace*100)*time.Millisecond, interval())
	}
}
