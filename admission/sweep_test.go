package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// city is tiles that take actions, and some that do not: they answer after a while that they are full.
type city struct {
	slow map[fence.TileID]bool

	mu      sync.Mutex
	full    bool // the slow ones
	applied map[fence.TileID]int
	asked   map[fence.TileID]int
}

func (c *city) Forward(ctx context.Context, _ string, in tile.Intent) (tile.Result, error) {
	c.mu.Lock()
	full := c.full && c.slow[in.Tile]
	c.asked[in.Tile]++
	c.mu.Unlock()
	if full {
		select {
		case <-time.After(time.Second):
			return tile.Result{}, tile.ErrOverloaded
		case <-ctx.Done():
			return tile.Result{}, context.Cause(ctx)
		}
	}
	time.Sleep(500 * time.Millisecond) // to the next tick
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied[in.Tile]++
	return tile.Result{Outcome: stream.Applied}, nil
}

func (c *city) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	return fence.Owner{Tile: id, Epoch: 1, Contact: "a"}, nil
}

// TestSweepGivesEachTileATurn: forty tiles are full and have a thousand actions that were left behind. That of another
// tile, left behind after them, is finished with the first sweep that it is old enough for. The full tiles are not
// asked for more than they refuse, and are finished when they have room.
func TestSweepGivesEachTileATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, each = 40, 25
		c := &city{slow: map[fence.TileID]bool{}, full: true, applied: map[fence.TileID]int{},
			asked: map[fence.TileID]int{}}
		store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		ledger, err := admission.New(store, nil)
		require.NoError(t, err)
		router, err := route.NewRouter(new(route.Table), c, nil)
		require.NoError(t, err)
		gate, err := admission.NewGateway(ledger, router, c, admission.ClientPrices,
			&admission.GatewayConfig{Unlimited: true})
		require.NoError(t, err)
		leave := func(id fence.TileID, n int) {
			for i := range n {
				a := play(fmt.Sprintf("%s-%d", id, i))
				a.Tile, a.Cost = id, 0
				_, err := ledger.Admit(t.Context(), a)
				require.NoError(t, err)
				time.Sleep(time.Millisecond)
			}
		}
		for i := range slow {
			c.slow[fence.TileID(i+1)] = true
			leave(fence.TileID(i+1), each)
		}
		time.Sleep(6 * time.Second)
		leave(1000, 1)
		leave(1001, 100)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- gate.Run(ctx) }()
		// An age, and an interval and a quarter of it, after its admission at the latest the sweep begins.
		time.Sleep(30*time.Second + 38*time.Second + 20*time.Second)
		c.mu.Lock()
		assert.Equal(t, 1, c.applied[1000])
		assert.Equal(t, 100, c.applied[1001], "a tile that takes them")
		for id := range c.slow {
			assert.LessOrEqual(t, c.asked[id], 12, "three a sweep")
			assert.Positive(t, c.asked[id])
		}
		c.full = false
		c.mu.Unlock()
		time.Sleep(2 * time.Minute)
		c.mu.Lock()
		for id := range c.slow {
			assert.Equal(t, each, c.applied[id])
		}
		c.mu.Unlock()
		cancel()
		require.NoError(t, <-ended)
	})
}

// keysOnly is a store whose list does not name tiles.
type keysOnly struct{ admission.Store }

func (k keysOnly) Pending(ctx context.Context, from, before time.Time, limit int) ([]admission.PendingAction, error) {
	list, err := k.Store.Pending(ctx, from, before, limit)
	for i := range list {
		list[i].Tile = 0
	}
	return list, err
}

// TestSweepOfAListWithoutTiles: the tiles are looked up, and what a sweep has not taken it says.
func TestSweepOfAListWithoutTiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		r := newRigOver(t, keysOnly{store}, newWorld("a"), nil)
		r.credit("ann", 100)
		for i := range 20 {
			_, err := r.ledger.Admit(t.Context(), play(fmt.Sprint("act-", i)))
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		for range 3 {
			r.world.answers = append(r.world.answers, errors.New("reset"))
		}
		info, err := r.gate.Sweep(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 20, info.Found)
		assert.Equal(t, 17, info.Left, "three in a row failed")
		info, err = r.gate.Sweep(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 17, info.Found)
		assert.Equal(t, 17, info.Resolved)
		assert.Zero(t, info.Left)
	})
}
