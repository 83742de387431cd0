package redisfanout_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

func worldOn(t *testing.T, w fence.World) *redisfanout.Fanout {
	client := redis.NewClusterClient(redisfanout.Options(stacktest.Fanout(t)...))
	t.Cleanup(func() { _ = client.Close() })
	f, err := redisfanout.New(client, &redisfanout.Config{World: fence.World{Name: w.Name}})
	require.NoError(t, err)
	return f
}

func TestWorld(t *testing.T) {
	fencetest.RunWorld(t, false, func(t *testing.T, w fence.World) fence.WorldKeeper { return worldOn(t, w) })
}

// TestWorldsHearTheirOwn: of two worlds on one server, each gets its own frames and hints.
func TestWorldsHearTheirOwn(t *testing.T) {
	const tile fence.TileID = 0x8528347bfffffff
	a, b := worldOn(t, fence.World{Name: "a"}), worldOn(t, fence.World{Name: "b"})
	frames, hints, ready := make(chan string, 8), make(chan string, 8), make(chan bool, 2)
	for name, f := range map[string]*redisfanout.Fanout{"a": a, "b": b} {
		stop, err := f.Subscribe(t.Context(), tile, func(data []byte) { frames <- name + " hears " + string(data) })
		require.NoError(t, err)
		defer stop()
		quit, err := f.SubscribeHints(fanout.HintGroupOf(tile), func([]fence.TileID) { hints <- name },
			func(bool) { ready <- true })
		require.NoError(t, err)
		defer quit()
	}
	<-ready
	<-ready
	for name, f := range map[string]*redisfanout.Fanout{"a": a, "b": b} {
		_, err := f.Publish(t.Context(), []fanout.Message{{Tile: tile, Data: []byte(name)}})
		require.NoError(t, err)
		require.NoError(t, f.PublishHints(t.Context(), []fence.TileID{tile}))
		require.Equal(t, name+" hears "+name, <-frames)
		require.Equal(t, name, <-hints)
	}
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, frames)
	require.Empty(t, hints)
}
