package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// crowd sends moves all at once and collects what became of them.
type crowd struct {
	mu      sync.Mutex
	began   time.Time
	sent    []time.Duration // when intents reached a tile, since began
	refused []*admission.LimitError
	acted   map[fence.TileID]bool // tiles that an action has reached
}

func (c *crowd) Forward(_ context.Context, _ string, in tile.Intent) (tile.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.ActionID != "" {
		if c.acted == nil {
			c.acted = map[fence.TileID]bool{}
		}
		c.acted[in.Tile] = true
	}
	c.sent = append(c.sent, time.Since(c.began))
	return tile.Result{Outcome: stream.Applied}, nil
}

func (c *crowd) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	return fence.Owner{Tile: id, Epoch: 1, Contact: "a"}, nil
}

// gateway is a gateway in front of the crowd's world.
func (c *crowd) gateway(t *testing.T, cfg admission.GatewayConfig, owners route.OwnerReader) *admission.Gateway {
	t.Helper()
	r := newRig(t, nil)
	router, err := route.NewRouter(new(route.Table), owners, nil)
	require.NoError(t, err)
	gate, err := admission.NewGateway(r.ledger, router, c, admission.ClientPrices, &cfg)
	require.NoError(t, err)
	return gate
}

// move sends n moves at once.
func (c *crowd) move(t *testing.T, gate *admission.Gateway, n int, in func(i int) tile.Intent) {
	t.Helper()
	c.began = time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, err := gate.Move(t.Context(), in(i))
			if err == nil {
				return
			}
			var limited *admission.LimitError
			assert.ErrorAs(t, err, &limited)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.refused = append(c.refused, limited)
		})
	}
	wg.Wait()
}

// assertShape checks that of n intents burst went at once, then one at each interval, and the rest was refused.
func (c *crowd) assertShape(t *testing.T, scope admission.Scope, got admission.Shaped, n, burst, delayed int,
	every time.Duration) {
	t.Helper()
	require.Len(t, c.sent, burst+delayed)
	for i, at := range c.sent {
		assert.Equal(t, time.Duration(max(0, i-burst+1))*every, at, i)
	}
	assert.Len(t, c.refused, n-burst-delayed)
	for _, e := range c.refused {
		assert.Equal(t, scope, e.Scope)
		assert.Positive(t, e.RetryAfter)
	}
	assert.EqualValues(t, delayed, got.Delayed)
	assert.EqualValues(t, n-burst-delayed, got.Refused)
	assert.Equal(t, every*time.Duration(delayed*(delayed+1)/2), got.Waited)
}

func TestBurstOfAnActorIsSmoothed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		gate := c.gateway(t, *admission.GatewayConfig{MoveRate: admission.Rate{PerSecond: 10, Burst: 3}}.With(
			admission.Tuning{MaxDelay: 500 * time.Millisecond}), c)
		c.move(t, gate, 12, func(int) tile.Intent { return tile.Intent{Tile: here, Actor: "ann"} })
		c.assertShape(t, admission.ScopeActor, gate.Stats().Actors, 12, 3, 5, 100*time.Millisecond)
		assert.EqualValues(t, 4, gate.Stats().Moves.Limited)
	})
}

func TestBurstAtATileIsSmoothed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		gate := c.gateway(t, admission.GatewayConfig{TileRate: admission.Rate{PerSecond: 100, Burst: 10}}, c)
		c.move(t, gate, 100, func(i int) tile.Intent { return tile.Intent{Tile: here, Actor: fmt.Sprint("p", i)} })
		c.assertShape(t, admission.ScopeTile, gate.Stats().Tiles, 100, 10, 25, 10*time.Millisecond)
		for _, e := range c.refused {
			assert.Equal(t, here, e.Tile)
		}
		_, err := gate.Move(t.Context(), tile.Intent{Tile: here + 1, Actor: "ann"})
		require.NoError(t, err, "other tiles are not held up")
	})
}

// unowned is a world without owners, but for the tiles in which a crowd has acted.
type unowned struct{ *crowd }

func (u unowned) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.acted[id] {
		return fence.Owner{Tile: id, Epoch: 1, Contact: "b"}, nil
	}
	return fence.Owner{Tile: id}, nil
}

// A wave of tiles without an owner reaches the servers that begin them at the rate, tile by tile; the intents of a tile
// share its turn, and an action that is refused one stays open.
func TestBurstOfSpawnsIsShaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begun := map[fence.TileID]int{}
		spawn := func(_ context.Context, id fence.TileID) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			begun[id]++
			return "b", nil
		}
		c := &crowd{}
		gate := c.gateway(t, admission.GatewayConfig{TakeoverRate: admission.Rate{PerSecond: 20, Burst: 5},
			Spawn: spawn}, unowned{c})
		const tiles = 50
		c.move(t, gate, tiles, func(i int) tile.Intent {
			return tile.Intent{Tile: here + fence.TileID(i), Actor: fmt.Sprint("p", i)}
		})
		c.assertShape(t, admission.ScopeTakeover, gate.Stats().Takeovers, tiles, 5, 5, 50*time.Millisecond)
		assert.Len(t, begun, 10)

		var refused fence.TileID
		for i := range fence.TileID(tiles) {
			if begun[here+i] == 0 {
				refused = here + i
			}
		}
		_, err := gate.Act(t.Context(), admission.Action{ID: "x", Actor: "ann", Asset: "dash", Tile: refused})
		require.NoError(t, err, "a bucket has tokens again")
		time.Sleep(time.Minute)

		c.sent = nil
		c.move(t, gate, 200, func(i int) tile.Intent {
			return tile.Intent{Tile: here + 1000 + fence.TileID(i%10), Actor: fmt.Sprint("q", i)}
		})
		assert.Len(t, c.sent, 200, "ten tiles, whose intents share turns")
	})
}

// An action that gets no turn has not been sent: it is pending, its attempt withdrawn, and the retry goes on.
func TestActionWithoutATurnIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		spawn := func(context.Context, fence.TileID) (string, error) { return "b", nil }
		gate := c.gateway(t, admission.GatewayConfig{TakeoverRate: admission.Rate{PerSecond: 1, Burst: 1},
			Spawn: spawn}, unowned{c})
		act := func(id string, at fence.TileID) error {
			_, err := gate.Act(t.Context(), admission.Action{ID: id, Actor: "ann", Asset: "dash", Tile: at})
			return err
		}
		require.NoError(t, act("x", here))
		err := act("y", here+1)
		require.ErrorIs(t, err, admission.ErrPending)
		require.ErrorIs(t, err, admission.ErrLimited)
		assert.Len(t, c.sent, 1)
		time.Sleep(time.Second)
		require.NoError(t, act("y", here+1))
		assert.Len(t, c.sent, 2)
	})
}

// A tile whose owner cannot be reached is suspect until it answers: the look for another owner takes a turn.
func TestTakeoversTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &admission.GatewayConfig{TakeoverRate: admission.Rate{PerSecond: 1, Burst: 1}})
		move := func(at fence.TileID) error {
			_, err := r.gate.Move(t.Context(), tile.Intent{Tile: at, Actor: "ann"})
			return err
		}
		require.NoError(t, move(here))
		r.world.down = true
		require.ErrorIs(t, move(here), admission.ErrForward)
		require.ErrorIs(t, move(here+1), admission.ErrForward)
		require.ErrorIs(t, move(here), admission.ErrForward, "it has the turn")
		require.ErrorIs(t, move(here+1), admission.ErrLimited, "its turn is a second away")
		r.world.down = false
		require.NoError(t, move(here))
		require.NoError(t, move(here), "it is not suspect any more")
		time.Sleep(time.Second)
		require.NoError(t, move(here+1))
		assert.Zero(t, r.gate.Stats().Takeovers.Delayed)
		assert.EqualValues(t, 1, r.gate.Stats().Takeovers.Refused)
	})
}

// A player who names tile after tile without an owner takes the turns that are there, not those of others.
func TestTakeoversAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &admission.GatewayConfig{TakeoverRate: admission.Rate{PerSecond: 100, Burst: 10},
			MoveRate: admission.Rate{PerSecond: 1e6, Burst: 1e6}})
		r.world.down = true
		move := func(at fence.TileID, actor string) error {
			_, err := r.gate.Move(t.Context(), tile.Intent{Tile: at, Actor: actor})
			return err
		}
		var next, taken atomic.Uint64
		var mallory sync.WaitGroup
		began := time.Now()
		for range 100 {
			mallory.Go(func() {
				for time.Since(began) < 3*time.Second {
					at := here + fence.TileID(next.Add(1))
					_ = move(at, "mallory") // the first look at a tile is free
					if !errors.Is(move(at, "mallory"), admission.ErrLimited) {
						taken.Add(1)
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for i := range 29 {
			time.Sleep(100 * time.Millisecond)
			at, who := here-fence.TileID(i)-1, fmt.Sprint("ann-", i)
			require.ErrorIs(t, move(at, who), admission.ErrForward)
			require.ErrorIs(t, move(at, who), admission.ErrForward, "her turn comes")
		}
		mallory.Wait()
		assert.Greater(t, taken.Load(), uint64(200), "what others leave is not withheld")
	})
}

// A caller that leaves before its turn has sent nothing.
func TestCallerLeavesBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		gate := c.gateway(t, admission.GatewayConfig{MoveRate: admission.Rate{PerSecond: 10, Burst: 1}}, c)
		_, err := gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = gate.Move(ctx, tile.Intent{Tile: here, Actor: "ann"})
		require.ErrorIs(t, err, admission.ErrLimited)
		assert.Len(t, c.sent, 1)
		assert.EqualValues(t, 1, gate.Stats().Actors.Refused)
	})
}

// TestATileIsSharedBetweenActors: three times as many as a tile may get come from actors who send all that they may.
// One who sends little has its turns.
func TestATileIsSharedBetweenActors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		gate := c.gateway(t, admission.GatewayConfig{TileRate: admission.Rate{PerSecond: 100, Burst: 50}}, c)
		ctx, stop := context.WithCancel(t.Context())
		var hogs sync.WaitGroup
		var passed, refused atomic.Int64
		for i := range 90 {
			hogs.Go(func() {
				time.Sleep(time.Duration(i%30) * 3300 * time.Microsecond)
				for ctx.Err() == nil {
					if _, err := gate.Move(ctx, tile.Intent{Tile: 7, Actor: fmt.Sprint("hog", i%30)}); err == nil {
						passed.Add(1)
					} else {
						refused.Add(1)
					}
					time.Sleep(time.Duration(30+i%7) * time.Millisecond)
				}
			})
		}
		time.Sleep(4 * time.Second)
		for range 12 {
			_, err := gate.Move(ctx, tile.Intent{Tile: 7, Actor: "ann"})
			assert.NoError(t, err)
			time.Sleep(500 * time.Millisecond)
		}
		stop()
		hogs.Wait()
		assert.Greater(t, refused.Load(), passed.Load())
		assert.Greater(t, passed.Load(), int64(600), "what the tile may get is used")
	})
}
