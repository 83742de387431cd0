package tilefence_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// deaf is a fan-out whose hints never arrive.
type deaf struct{ tilefence.Fanout }

func (deaf) SubscribeHints(int, func([]fence.TileID), func(bool)) (func(), error) {
	return func() {}, nil
}

// TestTheLastPassIsOverAllTiles: a checkpoint server that stops after the tiles copies their last snapshots, also of
// those that it has not had until then.
func TestTheLastPassIsOverAllTiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, b tilefence.Backends, play func() (stop func())){
		"a tile that is newer than the last list": func(t *testing.T, b tilefence.Backends, play func() func()) {
			b.Fanout = deaf{b.Fanout}
			c := checkpointer(t, b)
			run := start(t, c)
			waittest.Until(t, func() bool { return !c.Stats().Share.LastBeat.IsZero() }, 10*time.Second,
				time.Millisecond)
			time.Sleep(50 * time.Millisecond) // it has listed the tiles: none
			play()()
			require.NoError(t, run.stop())
		},
		"a server that has only just begun": func(t *testing.T, b tilefence.Backends, play func() func()) {
			play()()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, checkpointer(t, b).Run(ctx))
		},
		"another server stopped just before": func(t *testing.T, b tilefence.Backends, play func() func()) {
			first, second := checkpointer(t, b), checkpointer(t, b)
			runs := []*running{start(t, first), start(t, second)}
			for _, c := range []*tilefence.CheckpointServer{first, second} {
				waittest.Until(t, func() bool { return c.Stats().Share.Members == 2 }, 20*time.Second,
					time.Millisecond)
			}
			stop := play()
			waittest.Until(t, func() bool { return first.Stats().Share.Tiles+second.Stats().Share.Tiles == 1 },
				20*time.Second, time.Millisecond)
			if second.Stats().Share.Tiles == 1 {
				runs[0], runs[1] = runs[1], runs[0]
			}
			require.NoError(t, runs[0].stop())
			stop()
			require.NoError(t, runs[1].stop())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			test(t, b, func() func() {
				server := tileServer(t, b, tilefence.TileServerConfig{})
				require.NoError(t, server.Own(plaza))
				run := start(t, server)
				await(t, server, plaza)
				_, err := server.Submit(t.Context(), tile.Intent{Tile: plaza}) // of which a hint tells
				require.NoError(t, err)
				return func() {
					for range 5 {
						_, err := server.Submit(t.Context(), tile.Intent{Tile: plaza})
						require.NoError(t, err)
					}
					require.NoError(t, run.stop())
				}
			})
			last, err := b.Log.Last(t.Context(), plaza)
			require.NoError(t, err)
			require.NotZero(t, last.Seq)
			durable, found, err := b.Durable.Get(t.Context(), plaza)
			require.NoError(t, err)
			require.True(t, found)
			assert.Equal(t, last, durable.Position)
		})
	}
}

func checkpointer(t *testing.T, b tilefence.Backends) *tilefence.CheckpointServer {
	t.Helper()
	c, err := tilefence.NewCheckpointServer(b, nil)
	require.NoError(t, err)
	return c
}
