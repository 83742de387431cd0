package tilehost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// hostLine is one process's way to the back ends, which can be cut: seen from elsewhere, the process is dead.
// Promotions by way of it take their time and are counted.
type hostLine struct {
	w              *world
	cut            atomic.Bool
	promoted, lost atomic.Int64
	slow           time.Duration // what a promotion takes
	rival          fence.Grant   // if it has an epoch, whom every promotion loses to
}

func (l *hostLine) seams() tile.Seams { return l.of(l.w.seams()) }

func (l *hostLine) of(s tile.Seams) tile.Seams {
	return tile.Seams{Handover: s.Handover, Authority: intercept.AuthorityOf(s.Authority, l.call),
		Store: intercept.StoreOf(s.Store, l.call),
		Log:   intercept.LogOf(s.Log, l.call)}
}

func (l *hostLine) call(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
	switch {
	case c.Op == "claim" || c.Op == "rebase" || c.To == intercept.Log && c.Op != "read":
		return do(ctx)
	case l.cut.Load():
		return &fence.StoreError{Op: "any", Tile: c.Tile, Outcome: fence.ErrNotApplied,
			Err: errors.New("the line is cut")}
	case c.Op != "promote":
		return do(ctx)
	case l.rival.Epoch > 0:
		return &fence.LostError{Tile: c.Tile, Current: l.rival}
	}
	time.Sleep(l.slow)
	err := do(ctx)
	l.promoted.Add(1)
	if errors.Is(err, fence.ErrLost) {
		l.lost.Add(1)
	}
	return err
}

// follow makes a host follow tiles and waits until it has caught up with all of them.
func (h *runningHost) follow(t *testing.T, ids []fence.TileID) {
	t.Helper()
	require.NoError(t, h.Follow(ids...))
	for range 200 {
		time.Sleep(100 * time.Millisecond)
		if !slices.ContainsFunc(h.Status(), func(s tile.Status) bool {
			return s.State == tile.Following &&
				!s.Owner.Present()
		}) {
			break
		}
	}
	for _, id := range ids {
		s, _ := h.TileStatus(id)
		require.Equal(t, tile.Following, s.State, "%+v", s)
		require.True(t, s.Owner.Present(), "%+v", s)
	}
}

// untilTold is a follower that suspects no owner by itself.
var untilTold = tile.Config{SuspectAfter: tile.NeverSuspect}

func TestHostSuspectsPacedAndHotFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &hostLine{w: w, slow: 6 * time.Millisecond}
		a := w.hostAt("a:1", l.seams(), tilehost.Config{PromotionRate: 100_000})
		ids := tiles(600)
		require.NoError(t, a.Own(ids...))
		require.NoError(t, a.Await(t.Context(), ids...))

		var mu sync.Mutex
		underWay, most := 0, 0
		var order []fence.TileID
		cfg := tilehost.Config{Promotions: 8, PromotionRate: 300, Tile: untilTold}
		cfg.Tile.Hooks.Transition = func(i tile.TransitionInfo) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case i.To == tile.Claiming && i.From == tile.Following:
				order = append(order, i.Tile)
				underWay++
				most = max(most, underWay)
			case i.To == tile.Serving:
				underWay--
			}
		}
		b := w.hostAt("b:1", (&hostLine{w: w, slow: 18 * time.Millisecond}).seams(), cfg)
		b.follow(t, ids)
		// The first 20 tiles are hot, the next 100 warm.
		for round := range 30 {
			var said sync.WaitGroup
			for i, id := range ids[:120] {
				perTick := 1
				if i < 20 {
					perTick = 8
				}
				for j := range perTick {
					said.Go(func() {
						_, err := a.Submit(t.Context(),
							tile.Intent{Tile: id, Body: fmt.Appendf(nil, "w%d.%d", round, j)})
						assert.NoError(t, err)
					})
				}
			}
			said.Wait()
		}
		time.Sleep(time.Second)
		l.cut.Store(true)
		time.Sleep(6 * time.Second) // so that every follower knows that the owner hash does not move
		began := time.Now()
		assert.Equal(t, len(ids), b.Suspect("a:1"))
		assert.Zero(t, b.Suspect("c:1"))
		require.NoError(t, b.Await(t.Context(), ids...))
		assert.InDelta(t, 2*time.Second, time.Since(began), float64(300*time.Millisecond), "at the rate")
		mu.Lock()
		assert.LessOrEqual(t, most, 8)
		assert.Greater(t, most, 3, "they did overlap")
		order = slices.Clone(order)
		mu.Unlock()
		require.Len(t, order, len(ids))
		rank := func(id fence.TileID) int { return min(2, (slices.Index(ids, id)+80)/100) } // 0 hot, 1 warm, 2 idle
		assert.True(t, slices.IsSortedFunc(order, func(x, y fence.TileID) int { return rank(x) - rank(y) }),
			"hottest first")
		b.say(t, ids[0], "x")
		l.cut.Store(false)
		a.end(t)
		b.end(t)
	})
}

func TestHostLeavesASuspectedTileThatHasAnotherOwnerByThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &hostLine{w: w}
		a := w.hostAt("a:1", l.seams(), tilehost.Config{})
		b := w.host("b:1", tilehost.Config{PromotionRate: 1, Promotions: 1, Tile: untilTold})
		c := w.host("c:1", tilehost.Config{})
		ids := tiles(8)
		require.NoError(t, a.Own(ids...))
		require.NoError(t, a.Await(t.Context(), ids...))
		b.follow(t, ids)
		l.cut.Store(true)
		assert.Equal(t, 8, b.Suspect("a:1")) // one a second
		time.Sleep(100 * time.Millisecond)
		var others []fence.TileID
		for _, id := range ids {
			if s, _ := b.TileStatus(id); s.State == tile.Following {
				others = append(others, id)
			}
		}
		require.GreaterOrEqual(t, len(others), 6)
		for _, id := range others[:4] {
			require.NoError(t, c.TakeOver(id))
			require.NoError(t, c.Await(t.Context(), id))
		}
		time.Sleep(20 * time.Second)
		for _, id := range ids {
			g, err := w.authority.Lookup(t.Context(), id)
			require.NoError(t, err)
			s, _ := b.TileStatus(id)
			if slices.Contains(others[:4], id) {
				assert.Equal(t, "c:1", g.Contact)
				assert.Equal(t, tile.Following, s.State)
				assert.Equal(t, "c:1", s.Owner.Contact)
			} else {
				assert.Equal(t, "b:1", g.Contact)
				assert.Equal(t, tile.Serving, s.State)
			}
			assert.Equal(t, fence.Epoch(2), g.Epoch)
		}
		a.end(t)
		b.end(t)
		c.end(t)
	})
}

func TestTwoHostsFollowingTheSameTilesSeldomCollide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dead := &hostLine{w: w}
		a := w.hostAt("a:1", dead.seams(), tilehost.Config{})
		ids := tiles(600)
		require.NoError(t, a.Own(ids...))
		require.NoError(t, a.Await(t.Context(), ids...))
		lines := []*hostLine{{w: w, slow: 4 * time.Millisecond}, {w: w, slow: 4 * time.Millisecond}}
		var rivals []*runningHost
		for i, l := range lines {
			h := w.hostAt(fmt.Sprint("rival-", i), l.seams(), tilehost.Config{Promotions: 8})
			h.follow(t, ids)
			rivals = append(rivals, h)
		}
		time.Sleep(5 * time.Second)
		dead.cut.Store(true)
		time.Sleep(1100 * time.Millisecond) // a death is noticed no sooner
		for _, h := range rivals {
			h.Suspect("a:1") // and the owner falls silent, which they notice by themselves
		}
		time.Sleep(20 * time.Second)
		served := 0
		for _, id := range ids {
			by := 0
			for _, h := range rivals {
				s, _ := h.TileStatus(id)
				if s.State == tile.Serving {
					by++
					served++
				} else {
					assert.Equal(t, tile.Following, s.State, "the other one follows on")
				}
			}
			require.Equal(t, 1, by, "tile %s", id)
			g, err := w.authority.Lookup(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, fence.Epoch(2), g.Epoch, "each tile moved once")
		}
		assert.Equal(t, len(ids), served)
		lost := lines[0].lost.Load() + lines[1].lost.Load()
		t.Logf("%d of %d promotions lost", lost, lines[0].promoted.Load()+lines[1].promoted.Load())
		assert.Less(t, lost, int64(len(ids)/10))
		dead.cut.Store(false) // the dead one wakes up, learns, and stands down
		time.Sleep(5 * time.Second)
		assert.Empty(t, a.Status())
		for _, h := range append(rivals, a) {
			h.end(t)
		}
	})
}

func TestHostNoticesASilentOwnerByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &hostLine{w: w}
		a := w.hostAt("a:1", l.seams(), tilehost.Config{})
		b := w.host("b:1", tilehost.Config{})
		require.NoError(t, a.Own(testTile))
		a.say(t, testTile, "one")
		b.follow(t, []fence.TileID{testTile})
		_, err := b.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("x")})
		var redirect *tile.RedirectError
		require.ErrorAs(t, err, &redirect, "a follower answers nothing")
		assert.Equal(t, "a:1", redirect.Contact)
		time.Sleep(time.Minute)
		s, _ := b.TileStatus(testTile)
		require.Equal(t, tile.Following, s.State, "a living owner is left alone")
		l.cut.Store(true)
		began := time.Now()
		require.NoError(t, b.Await(t.Context(), testTile))
		assert.Less(t, time.Since(began), 4*time.Second)
		b.say(t, testTile, "two")
		l.cut.Store(false)
		time.Sleep(2 * time.Second)
		assert.Empty(t, a.Status())
		a.end(t)
		b.end(t)
		assert.Equal(t, []string{"one", "two"}, wordsOf(t, w.log, testTile))
	})
}

func TestHostFollowsAgainAfterItWasSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &hostLine{w: w}
		a := w.host("a:1", tilehost.Config{Refollow: true})
		b := w.hostAt("b:1", l.seams(), tilehost.Config{})
		require.NoError(t, a.Own(testTile))
		a.say(t, testTile, "one")
		require.NoError(t, b.TakeOver(testTile))
		require.NoError(t, b.Await(t.Context(), testTile))
		b.say(t, testTile, "two")
		time.Sleep(2 * time.Second)
		s, _ := a.TileStatus(testTile)
		require.Equal(t, tile.Following, s.State)
		require.Equal(t, tilehost.StepFollow, a.ends()[0].Next)
		l.cut.Store(true)
		require.NoError(t, a.Await(t.Context(), testTile))
		a.say(t, testTile, "three")
		a.end(t)
		b.end(t)
		assert.Equal(t, []string{"one", "two", "three"}, wordsOf(t, w.log, testTile))
	})
}

func TestHostHandsOver(t *testing.T) {
	for name, warm := range map[string]bool{"to a follower": true, "cold": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.cluster(2, seed.Rand(t), tilehost.Config{})
				a, b := c.hosts[0], c.hosts[1]
				require.NoError(t, a.Own(testTile))
				a.say(t, testTile, "one")
				if warm {
					b.follow(t, []fence.TileID{testTile})
				}
				began := time.Now()
				require.NoError(t, a.Drain(t.Context(), testTile, b.contact))
				assert.LessOrEqual(t, time.Since(began), 500*time.Millisecond, "within a tick")
				assert.Equal(t, b, c.oneServer(t, testTile))
				assert.Empty(t, a.Status())
				said := a.said(testTile)
				require.NotEmpty(t, said)
				assert.Equal(t, fence.Owner{Tile: testTile, Epoch: 2, Contact: b.contact}, said[len(said)-1],
					"it announced the successor")
				require.NoError(t, a.ends()[0].Err)
				_, err := a.Submit(t.Context(), tile.Intent{Tile: testTile})
				assert.Equal(t, &tile.RedirectError{Tile: testTile, Epoch: 2, Contact: b.contact}, err)
				b.say(t, testTile, "two")
				require.NoError(t, b.Drain(t.Context(), testTile, a.contact), "and back")
				a.say(t, testTile, "three")
				c.end(t)
				assert.Equal(t, []string{"one", "two", "three"}, wordsOf(t, w.log, testTile))
			})
		})
	}
}

func TestHostAcceptsWithoutWaitingBehindAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dead := &hostLine{w: w}
		a, giver := w.hostAt("a:1", dead.seams(), tilehost.Config{}), w.host("giver:1", tilehost.Config{})
		b := w.host("b:1", tilehost.Config{Promotions: 4, PromotionRate: 1, Tile: untilTold})
		ids := tiles(32)
		warm, cold := ids[0], ids[31]
		require.NoError(t, a.Own(ids[1:31]...))
		require.NoError(t, giver.Own(warm, cold))
		require.NoError(t, a.Await(t.Context(), ids[1:31]...))
		require.NoError(t, giver.Await(t.Context(), warm, cold))
		b.follow(t, ids[:31])
		dead.cut.Store(true)
		assert.Equal(t, 30, b.Suspect("a:1")) // half a minute of take-overs
		time.Sleep(time.Second)
		for _, id := range []fence.TileID{warm, cold} {
			s, _ := giver.TileStatus(id)
			asked := time.Now()
			require.NoError(t, b.Accept(t.Context(), tile.Handover{Tile: id, Epoch: s.Epoch, Position: s.Position,
				From: "giver:1", To: "b:1"}))
			assert.Less(t, time.Since(asked), 100*time.Millisecond)
		}
		dead.cut.Store(false)
		for _, h := range []*runningHost{a, b, giver} {
			h.end(t)
		}
	})
}

func TestHostAcceptSaysWhenItsFollowerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.host("a:1", tilehost.Config{})
		b := w.hostAt("b:1", (&hostLine{w: w, rival: fence.Grant{Tile: testTile, Epoch: 9, Contact: "z:1"}}).seams(),
			tilehost.Config{})
		require.NoError(t, a.Own(testTile))
		require.NoError(t, a.Await(t.Context(), testTile))
		b.follow(t, []fence.TileID{testTile})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := b.Accept(ctx, tile.Handover{Tile: testTile, Epoch: 1, From: "a:1", To: "b:1"})
		lost, ok := errors.AsType[*fence.LostError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "z:1", lost.Current.Contact)
		s, _ := b.TileStatus(testTile)
		assert.Equal(t, tile.Following, s.State, "it follows on")
		a.end(t)
		b.end(t)
	})
}

func TestHostGoesOnServingWhenTheSuccessorRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.cluster(2, seed.Rand(t), tilehost.Config{})
		a, b := c.hosts[0], c.hosts[1]
		require.NoError(t, a.Own(testTile))
		a.say(t, testTile, "one")
		b.end(t)
		require.ErrorIs(t, a.Drain(t.Context(), testTile, b.contact), tile.ErrHostEnded)
		a.say(t, testTile, "two")
		assert.ErrorIs(t, a.Drain(t.Context(), testTile+1, b.contact), tile.ErrRedirect)
		a.end(t)
	})
}

func TestHostsRouteIntentsWhileTilesAreHandedOverFollowedAndTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.cluster(3, seed.Rand(t), tilehost.Config{Refollow: true})
		ids := tiles(12)
		for i, id := range ids {
			require.NoError(t, c.hosts[i%3].Own(id))
			require.NoError(t, c.hosts[i%3].Await(t.Context(), id))
		}
		for i, id := range ids {
			require.NoError(t, c.hosts[(i+1)%3].Follow(id))
		}
		handed, taken := 0, 0
		c.traffic(t, ids, 600, time.Minute, func() {
			id, to := ids[c.random.IntN(len(ids))], c.hosts[c.random.IntN(3)]
			switch by := c.servers(id); {
			case c.random.IntN(2) == 0:
				taken++
				assert.NoError(t, to.TakeOver(id))
			case len(by) == 1 && by[0] != to:
				if by[0].Drain(t.Context(), id, to.contact) == nil {
					handed++
				}
			}
		})
		t.Logf("%d handed over, %d taken", handed, taken)
		assert.Greater(t, handed, 20, "too little happened")
		assert.Greater(t, taken, 50, "too little happened")
		for _, id := range ids {
			h := c.oneServer(t, id)
			c.mu.Lock()
			assert.Equal(t, h.contact, c.owners[id].Contact, "gossip was corrected by side effect")
			c.mu.Unlock()
		}
		c.end(t)
	})
}

func TestHostDrainsAllToSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.cluster(3, seed.Rand(t), tilehost.Config{})
		ids := tiles(200)
		require.NoError(t, c.hosts[0].Own(ids...))
		require.NoError(t, c.hosts[0].Await(t.Context(), ids...))
		require.NoError(t, c.hosts[0].DrainAll(t.Context(),
			func(id fence.TileID) string { return c.hosts[1+id>>20%2].contact }))
		assert.Empty(t, c.hosts[0].Status())
		for _, id := range ids {
			assert.Equal(t, c.hosts[1+id>>20%2], c.oneServer(t, id))
		}
		c.end(t)
	})
}
