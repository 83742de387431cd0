package share_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
)

// TestCheckpointersShareTiles: two checkpointers share tiles; after one has died the other checkpoints
// all of them.
func TestCheckpointersShareTiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, durable, list := memfence.New(), memcheckpoint.New(), share.NewMemory()
		log := memstream.New(store)
		heads := map[fence.TileID]fence.Position{}
		var tiles []fence.TileID
		for i := range 64 {
			tiles = append(tiles, fence.TileID(i+1)*100)
		}
		save := func(tick fence.Tick) {
			for _, tile := range tiles {
				result, err := store.Commit(t.Context(), fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:1",
					Prev: heads[tile], Tick: tick, Payload: []byte("event"), Install: tick == 1})
				require.NoError(t, err)
				heads[tile] = result.Position
				require.NoError(t, store.SaveSnapshot(t.Context(),
					fence.SnapshotWrite{Tile: tile, Position: result.Position, Tick: tick, Blob: []byte("state")}))
			}
		}
		requireSaved := func(tick fence.Tick) {
			t.Helper()
			for _, tile := range tiles {
				s, found, err := checkpoint.Restore(t.Context(), durable, tile)
				require.NoError(t, err)
				require.True(t, found, "tile %s", tile)
				require.Equal(t, tick, s.Tick, "tile %s", tile)
			}
		}
		var wg sync.WaitGroup
		start := func() (*share.Share, *link, context.CancelFunc) {
			c, err := checkpoint.New(log, durable, nil, nil, nil)
			require.NoError(t, err)
			way := &link{Members: list}
			s, err := share.New(way, "checkpointer", share.Fixed(tiles), c, nil)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() { _ = c.Run(ctx) })
			wg.Go(func() { _ = s.Run(ctx) })
			return s, way, cancel
		}
		save(1)
		one, oneWay, killOne := start()
		two, _, stopTwo := start()
		time.Sleep(20 * time.Second)
		requireSaved(1)
		require.Positive(t, one.Stats().Tiles)
		require.Equal(t, 64, one.Stats().Tiles+two.Stats().Tiles)

		oneWay.set(true, nil) // it cannot even say goodbye
		killOne()
		save(2)
		time.Sleep(20 * time.Second)
		requireSaved(2)
		require.Equal(t, 64, two.Stats().Tiles)
		stopTwo()
		wg.Wait()
	})
}
