package tilehost_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

const lookEvery = time.Second

// of is the load of tiles in which nothing happens.
func of(tiles int) route.Load { return route.Load{Tiles: tiles} }

// rebalance has hosts of a cluster rebalance their tiles; loads is what gossip says. stop ends it.
func (c *cluster) rebalance(t *testing.T, loads func() map[string]route.Load, hosts ...*runningHost) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for _, h := range hosts {
		go func() { ended <- h.Rebalance(ctx, lookEvery, loads) }()
	}
	return func() {
		cancel()
		for range hosts {
			require.NoError(t, <-ended)
		}
	}
}

// loads is how many tiles each host has, as was last announced.
func (c *cluster) loads() map[string]route.Load {
	loads := map[string]route.Load{}
	for _, h := range c.hosts {
		loads[h.contact] = route.Load{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.owners {
		if o.Contact != "" {
			loads[o.Contact] = route.Load{Tiles: loads[o.Contact].Tiles + 1}
		}
	}
	return loads
}

// served is how many tiles each host serves, in the order of the hosts.
func (c *cluster) served() (n []int) {
	for _, h := range c.hosts {
		serving := slices.DeleteFunc(h.Status(), func(s tile.Status) bool { return s.State != tile.Serving })
		n = append(n, len(serving))
	}
	return n
}

// given is how many tiles the hosts have handed over to even things out, and how many they failed to.
func (c *cluster) given() (sum tilehost.Stats) {
	for _, h := range c.hosts {
		s := h.Stats()
		sum.Rebalanced, sum.RebalanceFailed = sum.Rebalanced+s.Rebalanced, sum.RebalanceFailed+s.RebalanceFailed
	}
	return sum
}

// spread gives each host a number of tiles, and has every other follow them.
func (c *cluster) spread(t *testing.T, counts ...int) (ids []fence.TileID) {
	for _, n := range counts {
		ids = append(ids, tiles(len(ids) + n)[len(ids):]...)
	}
	left := ids
	for i, n := range counts {
		require.NoError(t, c.hosts[i].Own(left[:n]...))
		require.NoError(t, c.hosts[i].Await(t.Context(), left[:n]...))
		left = left[n:]
	}
	for _, h := range c.hosts {
		require.NoError(t, h.Follow(ids...)) // its own stay its own
	}
	return ids
}

// TestRestartedHostGetsItsShare: a host that comes back with nothing is handed its part of the tiles while they are
// played on, each intent is applied once, and then no tile moves any more.
func TestRestartedHostGetsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorld(t).cluster(3, seed.Rand(t), tilehost.Config{})
		ids := c.spread(t, 6, 6, 0)
		stop := c.rebalance(t, c.loads, c.hosts...)
		c.traffic(t, ids, 600, time.Minute, func() {})
		assert.Equal(t, []int{4, 4, 4}, c.served())
		assert.Equal(t, tilehost.Stats{Rebalanced: 4}, c.given())
		time.Sleep(5 * time.Minute)
		assert.Equal(t, tilehost.Stats{Rebalanced: 4}, c.given(), "tiles go to and fro")
		stop()
		c.end(t)
	})
}

// TestRebalanceWithLateGossip: hosts that hear of each hand-over three looks late move no more tiles than they must.
func TestRebalanceWithLateGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorld(t).cluster(8, seed.Rand(t), tilehost.Config{})
		c.spread(t, 4, 4, 4, 4, 4, 4, 4, 0)
		var late atomic.Pointer[map[string]route.Load]
		now := c.loads()
		late.Store(&now)
		hear := time.NewTicker(lookEvery / 4)
		defer hear.Stop()
		ended := make(chan struct{})
		go func() {
			heard := []map[string]route.Load{now}
			for {
				select {
				case <-hear.C:
				case <-ended:
					return
				}
				heard = append(heard, c.loads())
				late.Store(&heard[max(0, len(heard)-12)])
			}
		}()
		stop := c.rebalance(t, func() map[string]route.Load { return maps.Clone(*late.Load()) }, c.hosts...)
		most := 0
		for range 120 {
			time.Sleep(time.Second)
			most = max(most, c.served()[7])
		}
		stop()
		close(ended)
		t.Logf("moved %+v, the host that was empty had at most %d, in the end %v", c.given(), most, c.served())
		assert.GreaterOrEqual(t, slices.Min(c.served()), 2)
		assert.LessOrEqual(t, most, 5, "too many gave to the same host")
		assert.LessOrEqual(t, c.given().Rebalanced, uint64(6))
		c.end(t)
	})
}

// TestRebalanceStopsAtARefusal: a tile stays, and is played, when its successor is full, may not run it or has ended;
// and that one is left in peace for a while.
func TestRebalanceStopsAtARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.cluster(2, seed.Rand(t), tilehost.Config{MaxTiles: 8})
		ids := tiles(16)
		require.NoError(t, c.hosts[0].Own(ids[:8]...))
		require.NoError(t, c.hosts[0].Await(t.Context(), ids[:8]...))
		require.NoError(t, c.hosts[1].Follow(ids[8:]...)) // so it is full
		stop := c.rebalance(t, c.loads, c.hosts...)
		time.Sleep(25 * lookEvery)
		stop()
		assert.Equal(t, []int{8, 0}, c.served())
		failed := c.given()
		assert.Zero(t, failed.Rebalanced)
		assert.Contains(t, []uint64{1, 2}, failed.RebalanceFailed, "once in ten looks, after the first three")
		for i, id := range ids[:8] {
			c.hosts[0].say(t, id, fmt.Sprint("w", i))
		}
		c.end(t)
	})
}

// TestRebalanceNeedsToBeSure: no tile moves in a group that changes at every look, or whose emptiest host does, without
// this host in the group, to a host with a tile less, within the first looks of a tile's life, or after the end.
func TestRebalanceNeedsToBeSure(t *testing.T) {
	for name, loads := range map[string]func(look int, real map[string]route.Load) map[string]route.Load{
		"members come and go": func(look int, real map[string]route.Load) map[string]route.Load {
			if look%2 == 0 {
				real["host-9:1"] = of(3)
			}
			return real
		},
		"not a member": func(_ int, real map[string]route.Load) map[string]route.Load {
			delete(real, "host-0:1")
			return real
		},
		"one tile less": func(_ int, real map[string]route.Load) map[string]route.Load {
			real["host-1:1"], real["host-2:1"] = of(3), of(3)
			return real
		},
		"another is the emptiest": func(look int, real map[string]route.Load) map[string]route.Load {
			real["host-1:1"], real["host-2:1"] = of(look%2*4), of(4-look%2*4)
			return real
		},
		"nothing is known": func(int, map[string]route.Load) map[string]route.Load { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newWorld(t).cluster(3, seed.Rand(t), tilehost.Config{})
				c.spread(t, 4, 0, 0)
				look := 0
				next := func() map[string]route.Load { look++; return loads(look, c.loads()) }
				stop := c.rebalance(t, next, c.hosts[0])
				time.Sleep(time.Minute)
				stop()
				assert.Greater(t, look, 20)
				assert.Equal(t, []int{4, 0, 0}, c.served())
				c.end(t)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := newWorld(t).cluster(2, seed.Rand(t), tilehost.Config{})
		c.spread(t, 4, 0)
		stop := c.rebalance(t, c.loads, c.hosts...)
		time.Sleep(2 * lookEvery)
		assert.Equal(t, []int{4, 0}, c.served(), "the tiles have only just come")
		stop()
		time.Sleep(time.Minute)
		assert.Equal(t, []int{4, 0}, c.served(), "it has ended")
		c.end(t)
	})
}

// TestRebalanceMovesAShare: of 62 tiles that are all on one of three hosts a share moves at each look, so each has its
// own within ten looks, and none gets more.
func TestRebalanceMovesAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorld(t).cluster(3, seed.Rand(t), tilehost.Config{})
		c.spread(t, 62, 0, 0)
		stop := c.rebalance(t, c.loads, c.hosts...)
		began, first := time.Now(), time.Duration(0)
		for slices.Min(c.served()) < 19 {
			time.Sleep(lookEvery / 4)
			if first == 0 && c.given().Rebalanced > 0 {
				first = time.Since(began)
			}
			require.Less(t, time.Since(began), 12*lookEvery, "%v", c.served())
		}
		t.Logf("the first moved after %v, all after %v: %v", first, time.Since(began), c.served())
		require.LessOrEqual(t, first, 6*lookEvery)
		time.Sleep(20 * lookEvery)
		require.LessOrEqual(t, slices.Max(c.served()), 23)
		require.LessOrEqual(t, c.given().Rebalanced, uint64(42), "tiles go to and fro")
		stop()
		c.end(t)
	})
}

// TestRebalanceOfAThousandTiles: a server that comes back last in a rolling upgrade has its share of 1,000 tiles within
// 15 s, and no tile misses a tick for it.
func TestRebalanceOfAThousandTiles(t *testing.T) {
	if testing.Short() {
		t.Skip("two thousand followers")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newWorld(t).cluster(3, seed.Rand(t), tilehost.Config{})
		c.spread(t, 500, 500, 0)
		time.Sleep(tilehost.RestLooks * lookEvery) // the last tiles came while the others were upgraded
		stop := c.rebalance(t, c.loads, c.hosts...)
		began := time.Now()
		for slices.Min(c.served()) < 300 {
			time.Sleep(lookEvery / 4)
			require.Less(t, time.Since(began), 15*time.Second, "%v", c.served())
		}
		t.Logf("after %v: %v", time.Since(began), c.served())
		stop()
		for _, h := range c.hosts {
			for _, s := range h.Status() {
				require.Zero(t, s.Missed, "tile %s", s.Tile)
			}
		}
		c.end(t)
	})
}

// TestPlan: all hosts make the same plan of the same loads, and by it each gives only what the others do not.
func TestPlan(t *testing.T) {
	type hosts = map[string]route.Load
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		loads map[string]route.Load
		want  map[string]map[string]int
	}{
		"even":         {hosts{"a": of(4), "b": of(4), "c": of(5)}, nil},
		"one is empty": {hosts{"a": of(6), "b": of(6), "c": of(0)}, gives("a", "c", 2, "b", "c", 2)},
		"many give a few": {hosts{"a": of(4), "b": of(4), "c": of(4), "d": of(0)},
			gives("a", "d", 1, "b", "d", 1, "c", "d", 1)},
		"work, not number": {hosts{"a": {Tiles: 10, Work: 990 * ms}, "b": {Tiles: 10, Work: 90 * ms}},
			gives("a", "b", 4)},
		"a tile too heavy": {hosts{"a": {Tiles: 1, Work: 900 * ms}, "b": of(20)}, nil},
		"beside a heavy one": {hosts{"a": {Tiles: 1, Work: 900 * ms}, "b": of(20), "c": of(0)},
			gives("b", "c", 10)},
	} {
		plans := map[string]map[string]int{}
		for self := range c.loads {
			if p := tilehost.Plan(self, c.loads); len(p) > 0 {
				plans[self] = p
			}
		}
		if c.want == nil {
			assert.Empty(t, plans, name)
			continue
		}
		assert.Equal(t, c.want, plans, name)
	}
	liar := map[string]route.Load{"a": {Tiles: 1 << 31}, "b": of(3)}
	assert.LessOrEqual(t, tilehost.Plan("a", liar)["b"], 4096, "a plan ends")
}

// gives is a plan: from, to, tiles, and so on.
func gives(words ...any) map[string]map[string]int {
	plans := map[string]map[string]int{}
	for i := 0; i < len(words); i += 3 {
		plans[words[i].(string)] = map[string]int{words[i+1].(string): words[i+2].(int)}
	}
	return plans
}

// TestRebalanceTakesTheColdest: the tile in which the most happens stays.
func TestRebalanceTakesTheColdest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorld(t).cluster(2, seed.Rand(t), tilehost.Config{})
		ids := c.spread(t, 2, 0)
		stop := c.rebalance(t, c.loads, c.hosts...)
		for i := 0; c.given().Rebalanced == 0; i++ {
			require.Less(t, i, 600)
			c.hosts[0].say(t, ids[0], fmt.Sprint("w", i))
			time.Sleep(100 * time.Millisecond)
		}
		assert.Same(t, c.hosts[0], c.oneServer(t, ids[0]))
		assert.Same(t, c.hosts[1], c.oneServer(t, ids[1]))
		stop()
		c.end(t)
	})
}

func TestRebalanceArguments(t *testing.T) {
	h, err := tilehost.New("host-0:1", newWorld(t).seams(), newRules, nil)
	require.NoError(t, err)
	none := func() map[string]route.Load { return nil }
	require.ErrorIs(t, h.Rebalance(t.Context(), 0, none), fence.ErrInvalidArgument)
	require.ErrorIs(t, h.Rebalance(t.Context(), time.Second, nil), fence.ErrInvalidArgument)
}
