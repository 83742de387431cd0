package tilehost_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

func TestHostGivesEachTileItsOwnClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		durable := memcheckpoint.New()
		var mu sync.Mutex
		var ended []tilehost.EndInfo
		h, err := tilehost.New("a:1", tile.Seams{Authority: w.authority, Store: w.store, Log: w.log, Journal: durable,
			Checkpoint: durable.Get},
			newRules, &tilehost.Config{
				Hooks: tilehost.Hooks{Ended: func(e tilehost.EndInfo) {
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, e)
				}},
				Configure: func(id fence.TileID, c *tile.Config) {
					switch id {
					case testTile:
						c.Durability = tile.WriteThrough
					case testTile + 2:
						c.Durability = -1
					}
				}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		require.NoError(t, h.Own(testTile, testTile+1, testTile+2))
		require.NoError(t, h.Await(t.Context(), testTile, testTile+1))
		s, _ := h.TileStatus(testTile)
		assert.Equal(t, tile.WriteThrough, s.Durability)
		base, found, err := durable.Get(t.Context(), testTile)
		require.NoError(t, err)
		require.True(t, found)
		assert.Equal(t, s.Position, base.Position)
		s, _ = h.TileStatus(testTile + 1)
		assert.Equal(t, tile.Checkpointed, s.Durability)
		mu.Lock()
		require.Len(t, ended, 1)
		assert.ErrorIs(t, ended[0].Err, fence.ErrInvalidArgument)
		mu.Unlock()
		stop()
		require.NoError(t, <-done)
	})
}

// neverConfirmed is a store on which nothing of one tile is ever confirmed.
type neverConfirmed struct {
	fence.Store
	tile fence.TileID
}

func (n *neverConfirmed) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	x, err := n.Store.Rebase(ctx, r)
	if err == nil && r.Tile == n.tile {
		return fence.Receipt{}, &fence.UnconfirmedError{Tile: r.Tile, Receipt: x, Want: 1}
	}
	return x, err
}

// A tile whose replica is down does not keep a tile of another shard from being claimed.
func TestHostPromotesPastATileThatIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h, err := tilehost.New("a:1", tile.Seams{Authority: w.authority, Store: &neverConfirmed{Store: w.store,
			tile: testTile}, Log: w.log},
			newRules, &tilehost.Config{Promotions: 1})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		require.NoError(t, h.Own(testTile))
		time.Sleep(time.Second)
		asked := time.Now()
		require.NoError(t, h.Own(testTile+1))
		require.NoError(t, h.Await(ctx, testTile+1))
		assert.Less(t, time.Since(asked), time.Second)
		stop()
		require.NoError(t, <-ended)
	})
}
