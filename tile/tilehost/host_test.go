package tilehost_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// runningHost is a host under Run, and what it said.
type runningHost struct {
	*tilehost.Host
	contact string
	stop    context.CancelFunc
	err     error
	done    chan struct{}

	mu        sync.Mutex
	announced []fence.Owner
	ended     []tilehost.EndInfo
	promoted  []tilehost.PromotionInfo
	rules     map[fence.TileID]*ledgerRules // the latest of each tile
}

// host starts a host. What cfg has of hooks and Announce is replaced by a record of the calls; gossip hears
// the announcements too.
func (w *world) host(contact string, cfg tilehost.Config, gossip ...func(fence.Owner)) *runningHost {
	w.t.Helper()
	return w.hostAt(contact, w.seams(), cfg, gossip...)
}

// hostAt is host on seams of its own.
func (w *world) hostAt(contact string, seams tile.Seams, cfg tilehost.Config,
	gossip ...func(fence.Owner)) *runningHost {
	w.t.Helper()
	h := &runningHost{contact: contact, done: make(chan struct{}), rules: map[fence.TileID]*ledgerRules{}}
	cfg.Announce = func(o fence.Owner) {
		h.note(func() { h.announced = append(h.announced, o) })
		for _, g := range gossip {
			g(o)
		}
	}
	cfg.Hooks.Ended = func(i tilehost.EndInfo) { h.note(func() { h.ended = append(h.ended, i) }) }
	cfg.Hooks.Promoted = func(i tilehost.PromotionInfo) { h.note(func() { h.promoted = append(h.promoted, i) }) }
	var err error
	h.Host, err = tilehost.New(contact, seams, func(id fence.TileID) (tile.Rules, error) {
		r := &ledgerRules{}
		h.note(func() { h.rules[id] = r })
		return r, nil
	}, &cfg)
	require.NoError(w.t, err)
	h.run(w.t)
	return h
}

func (h *runningHost) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h.stop = cancel
	go func() {
		defer close(h.done)
		h.err = h.Run(ctx)
	}()
}

func (h *runningHost) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *runningHost) end(t *testing.T) {
	t.Helper()
	h.stop()
	<-h.done
	require.NoError(t, h.err)
	assert.Empty(t, h.Status())
}

// said is what the host announced of a tile, in order.
func (h *runningHost) said(id fence.TileID) (owners []fence.Owner) {
	h.note(func() {
		for _, o := range h.announced {
			if o.Tile == id {
				owners = append(owners, o)
			}
		}
	})
	return owners
}

func (h *runningHost) ends() (ends []tilehost.EndInfo) {
	h.note(func() { ends = slices.Clone(h.ended) })
	return ends
}

func (h *runningHost) say(t *testing.T, id fence.TileID, word string) {
	t.Helper()
	o, err := h.Submit(t.Context(), tile.Intent{Tile: id, ActionID: word, Body: []byte(word)})
	require.NoError(t, err)
	require.Equal(t, stream.Applied, o.Outcome)
}

func TestHostOwnsServesAndDrainsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		mine := tiles(300) // more than are drained at once
		h := w.host("a:1", tilehost.Config{})
		require.NoError(t, h.Own(mine...))
		require.NoError(t, h.Own(mine[:10]...), "again is no error")
		require.NoError(t, h.Await(t.Context(), mine...))
		for _, id := range mine {
			h.say(t, id, "hello")
			assert.Equal(t, []fence.Owner{{Tile: id, Epoch: 1, Contact: "a:1"}}, h.said(id))
		}
		all := h.Status()
		require.Len(t, all, len(mine))
		assert.True(t, slices.IsSortedFunc(all, func(a, b tile.Status) int { return int(a.Tile) - int(b.Tile) }))
		one, ok := h.TileStatus(mine[7])
		assert.True(t, ok)
		assert.Equal(t, tile.Serving, one.State)
		require.NoError(t, h.Processor(mine[7]).Inspect(t.Context(), func(r tile.Rules, _ fence.Position) {
			assert.Equal(t, []string{"hello"}, r.(*ledgerRules).Words)
		}))

		h.end(t)
		for _, id := range mine {
			g, err := w.authority.Lookup(t.Context(), id)
			require.NoError(t, err)
			assert.False(t, g.Held(), "drained means released")
			assert.Equal(t, fence.Owner{Tile: id, Epoch: 1}, h.said(id)[1], "and said so")
		}
		assert.Len(t, h.ends(), len(mine))
		for _, e := range h.ends() {
			require.NoError(t, e.Err)
			require.Equal(t, tilehost.StepForget, e.Next)
		}
		assert.ErrorIs(t, h.Own(mine...), tile.ErrHostEnded)
		assert.ErrorIs(t, h.TakeOver(mine[0]), tile.ErrHostEnded)
		assert.ErrorIs(t, h.Run(t.Context()), fence.ErrAlreadyRun)
		_, err := h.Submit(t.Context(), tile.Intent{Tile: mine[0]})
		assert.ErrorIs(t, err, tile.ErrRedirect)
	})
}

func TestHostLeavesWhatIsHeldElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.host("a:1", tilehost.Config{}), w.host("b:1", tilehost.Config{Restart: true, Refollow: true})
		require.NoError(t, a.Own(testTile))
		require.NoError(t, a.Await(t.Context(), testTile))
		require.NoError(t, b.Own(testTile))
		err := b.Await(t.Context(), testTile)
		var lost *fence.LostError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, "a:1", lost.Current.Contact)
		assert.Nil(t, b.Processor(testTile))
		assert.Equal(t, []fence.Owner{{Tile: testTile, Epoch: 1, Contact: "a:1"}}, b.said(testTile),
			"it learned who owns the tile")
		_, err = b.Submit(t.Context(), tile.Intent{Tile: testTile})
		assert.Equal(t, &tile.RedirectError{Tile: testTile, Epoch: 1, Contact: "a:1"}, err)
		_, err = b.Submit(t.Context(), tile.Intent{Tile: testTile + 1})
		assert.Equal(t, &tile.RedirectError{Tile: testTile + 1}, err, "no owner is known")
		_, err = b.Submit(t.Context(), tile.Intent{})
		assert.ErrorIs(t, err, fence.ErrInvalidArgument)
		assert.ErrorIs(t, b.Await(t.Context(), testTile), tile.ErrRedirect, "no part in it")
		a.end(t)
		b.end(t)
	})
}

func TestHostTakesOverAndTheLoserForgetsAndAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.host("a:1", tilehost.Config{}), w.host("b:1", tilehost.Config{})
		require.NoError(t, a.Own(testTile))
		a.say(t, testTile, "one")
		require.NoError(t, b.TakeOver(testTile))
		require.NoError(t, b.Await(t.Context(), testTile))
		b.say(t, testTile, "two")
		time.Sleep(time.Second) // the loser's next commit tells it
		_, part := a.TileStatus(testTile)
		assert.False(t, part)
		successor := fence.Owner{Tile: testTile, Epoch: 2, Contact: "b:1"}
		assert.Equal(t, []fence.Owner{{Tile: testTile, Epoch: 1, Contact: "a:1"}, successor}, a.said(testTile))
		require.Len(t, a.ends(), 1)
		assert.ErrorIs(t, a.ends()[0].Err, tile.ErrSuperseded)
		_, err := a.Submit(t.Context(), tile.Intent{Tile: testTile})
		assert.Equal(t, &tile.RedirectError{Tile: testTile, Epoch: 2, Contact: "b:1"}, err)
		require.NoError(t, b.TakeOver(testTile), "its own tile: nothing happens")
		time.Sleep(time.Second)
		assert.Equal(t, []fence.Owner{successor}, b.said(testTile))
		require.NoError(t, a.TakeOver(testTile), "and back")
		require.NoError(t, a.Await(t.Context(), testTile))
		a.end(t)
		b.end(t)
		assert.Equal(t, []string{"one", "two"}, wordsOf(t, w.log, testTile))
	})
}

// A tile that is just leaving comes back if it is asked for.
func TestHostTileWantedWhileItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		h := w.host("a:1",
			tilehost.Config{Tile: tile.Config{Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt,
				error) {
				<-release
				return w.store.Commit(ctx, c)
			}}})
		require.NoError(t, h.Own(testTile))
		require.NoError(t, h.Await(t.Context(), testTile))
		drained := make(chan error)
		go func() { drained <- h.Drain(context.Background(), testTile, "") }()
		synctest.Wait()
		time.Sleep(time.Second) // the first tick is in the store's hands, and the drain waits for it
		s, _ := h.TileStatus(testTile)
		require.NotEqual(t, tile.Idle, s.State)
		require.NoError(t, h.Own(testTile))
		close(release)
		require.NoError(t, <-drained)
		require.NoError(t, h.Await(t.Context(), testTile))
		s, _ = h.TileStatus(testTile)
		assert.Equal(t, fence.Epoch(2), s.Epoch, "it was released and claimed again")
		h.end(t)
	})
}

func TestHostForgetsADrainedTile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.host("a:1", tilehost.Config{})
		require.NoError(t, h.Own(tiles(3)...))
		require.NoError(t, h.Await(t.Context(), tiles(3)...))
		require.NoError(t, h.Drain(t.Context(), testTile, ""))
		assert.Nil(t, h.Processor(testTile))
		assert.Len(t, h.Status(), 2)
		assert.Equal(t, fence.Owner{Tile: testTile, Epoch: 1}, h.said(testTile)[1])
		assert.ErrorIs(t, h.Drain(t.Context(), testTile, ""), tile.ErrRedirect)
		require.NoError(t, h.DrainAll(t.Context(), func(fence.TileID) string { return "" }))
		assert.Empty(t, h.Status())
		h.end(t)
	})
}

func TestHostBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := &runningHost{done: make(chan struct{})}
		var err error
		h.Host, err = tilehost.New("a:1", w.seams(),
			newRules, nil)
		require.NoError(t, err)
		require.NoError(t, h.Own(tiles(3)...))
		s, ok := h.TileStatus(testTile)
		assert.True(t, ok)
		assert.Equal(t, tile.Idle, s.State)
		require.NoError(t, h.Drain(t.Context(), tiles(3)[2], ""), "nothing to drain yet")
		assert.Len(t, h.Status(), 2)
		h.run(t)
		require.NoError(t, h.Await(t.Context(), tiles(2)...))
		h.end(t)
	})
}

func TestHostFailuresAreReportedPerTileAndRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.host("a:1", tilehost.Config{Restart: true})
		ids := tiles(2)
		require.NoError(t, h.Own(ids...))
		require.NoError(t, h.Await(t.Context(), ids...))
		broken := errors.New("the rules are broken")
		h.note(func() { h.rules[ids[0]].Err = broken })
		_, err := h.Submit(t.Context(), tile.Intent{Tile: ids[0], Body: []byte("x")})
		require.Error(t, err)
		synctest.Wait()
		require.Len(t, h.ends(), 1)
		end := h.ends()[0]
		assert.ErrorIs(t, end.Err, broken)
		assert.Equal(t, tilehost.StepRestart, end.Next)
		assert.GreaterOrEqual(t, end.After, 500*time.Millisecond)
		s, _ := h.TileStatus(ids[0])
		assert.Equal(t, tile.Stopped, s.State)
		h.say(t, ids[1], "the other plays on")
		require.NoError(t, h.Await(t.Context(), ids[0]), "with new rules")
		s, _ = h.TileStatus(ids[0])
		assert.Equal(t, fence.Epoch(2), s.Epoch)
		h.say(t, ids[0], "again")
		h.end(t)
	})
}

func TestHostBacksOffFromWhatKeepsFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var tries []time.Time
		var next []tilehost.NextStep
		const taken = time.Millisecond
		start := func(restart bool) (*tilehost.Host, context.CancelFunc, chan error) {
			h, err := tilehost.New("a:1", w.seams(), func(fence.TileID) (tile.Rules, error) {
				time.Sleep(taken) // a caller of Await waits by then
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
				return nil, errors.New("no such map")
			}, &tilehost.Config{Restart: restart, Hooks: tilehost.Hooks{Ended: func(i tilehost.EndInfo) {
				mu.Lock()
				defer mu.Unlock()
				next = append(next, i.Next)
			}}})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- h.Run(ctx) }()
			return h, cancel, done
		}
		h, stop, done := start(true)
		require.NoError(t, h.Own(testTile))
		time.Sleep(10 * time.Minute)
		mu.Lock()
		n := len(tries)
		for i := 8; i < n; i++ {
			assert.LessOrEqual(t, tries[i].Sub(tries[i-1]), 30*time.Second+taken)
			assert.GreaterOrEqual(t, tries[i].Sub(tries[i-1]), 15*time.Second)
		}
		mu.Unlock()
		assert.InDelta(t, 30, n, 12)
		stop()
		require.NoError(t, <-done, "a tile's failure is none of the host's")

		mu.Lock()
		tries, next = nil, nil
		mu.Unlock()
		h, stop, done = start(false)
		require.NoError(t, h.Own(testTile))
		assert.ErrorContains(t, h.Await(t.Context(), testTile), "no such map")
		assert.Equal(t, []tilehost.NextStep{tilehost.StepForget}, next)
		stop()
		require.NoError(t, <-done)
	})
}

func TestHostClaimsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		booting, most := map[fence.TileID]bool{}, 0
		h := w.host("a:1", tilehost.Config{Promotions: 5, PromotionRate: 100,
			Tile: tile.Config{Hooks: tile.Hooks{Transition: func(i tile.TransitionInfo) {
				mu.Lock()
				defer mu.Unlock()
				booting[i.Tile] = i.To == tile.Claiming || i.To == tile.Replaying || i.To == tile.Installing
				n := 0
				for _, b := range booting {
					if b {
						n++
					}
				}
				most = max(most, n)
			}}}})
		began := time.Now()
		require.NoError(t, h.Own(tiles(200)...))
		require.NoError(t, h.Await(t.Context(), tiles(200)...))
		assert.InDelta(t, 2*time.Second, time.Since(began), float64(100*time.Millisecond))
		mu.Lock()
		assert.LessOrEqual(t, most, 5)
		mu.Unlock()
		synctest.Wait() // a tile is owned before its turn is reported
		h.note(func() { assert.Len(t, h.promoted, 200) })
		h.end(t)
	})
}

// What a processor leaves behind when it has ended: no goroutine, and nothing that keeps its rules alive.
func TestHostLeavesNoGoroutineAndNoRulesBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := newWorld(t)
	a := w.host("a:1", tilehost.Config{Tile: tile.Config{TickInterval: 5 * time.Millisecond}})
	b := w.host("b:1", tilehost.Config{Tile: tile.Config{TickInterval: 5 * time.Millisecond}})
	ids := tiles(20)
	require.NoError(t, a.Own(ids...))
	require.NoError(t, a.Await(t.Context(), ids...))
	before := runtime.NumGoroutine()
	var rules []weak.Pointer[ledgerRules]
	a.note(func() {
		for id, r := range a.rules {
			rules = append(rules, weak.Make(r))
			delete(a.rules, id)
		}
	})
	require.Len(t, rules, len(ids))
	for _, id := range ids[:10] {
		require.NoError(t, b.TakeOver(id)) // a's are superseded
	}
	require.NoError(t, b.Await(t.Context(), ids[:10]...))
	require.NoError(t, b.DrainAll(t.Context(), func(fence.TileID) string { return "" }))
	for _, id := range ids[10:] {
		require.NoError(t, a.Drain(t.Context(), id, ""))
	}
	waittest.Until(t, func() bool {
		runtime.GC()
		return len(a.Status()) == 0 && runtime.NumGoroutine() <= before-len(ids) &&
			!slices.ContainsFunc(rules, func(p weak.Pointer[ledgerRules]) bool { return p.Value() != nil })
	}, 10*time.Second, 10*time.Millisecond)
	a.end(t)
	b.end(t)
}

func TestHostArguments(t *testing.T) {
	w := newWorld(t)
	rules := newRules
	for name, f := range map[string]func() (*tilehost.Host, error){
		"contact": func() (*tilehost.Host, error) { return tilehost.New("", w.seams(), rules, nil) },
		"seams":   func() (*tilehost.Host, error) { return tilehost.New("a", tile.Seams{}, rules, nil) },
		"rules":   func() (*tilehost.Host, error) { return tilehost.New("a", w.seams(), nil, nil) },
	} {
		_, err := f()
		assert.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	for _, cfg := range []tilehost.Config{{Promotions: -1}, {PromotionRate: -1}, {PromotionRate: 1e7},
		{Tile: tile.Config{Follow: true}}, {Tile: tile.Config{TakeOver: true}},
		{Tile: tile.Config{TickInterval: -1}}} {
		_, err := tilehost.New("a", w.seams(), rules, &cfg)
		assert.ErrorIs(t, err, fence.ErrInvalidArgument, "%+v", cfg)
	}
	h, err := tilehost.New("a", w.seams(), rules, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, h.Own(testTile, 0), fence.ErrInvalidArgument)
	assert.Empty(t, h.Status(), "all or none")
	assert.ErrorIs(t, h.TakeOver(0), fence.ErrInvalidArgument)
	assert.Zero(t, h.Suspect(""))
	for _, o := range []tile.Handover{{}, {Tile: testTile, Epoch: 1, To: "b"}, {Tile: testTile, To: "a"}} {
		assert.ErrorIs(t, h.Accept(t.Context(), o), fence.ErrInvalidArgument, "%+v", o)
	}
}
