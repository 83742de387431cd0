package tile_test

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

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// accept is what the process of a follower does with a hand-over: it returns when the tile is served.
func (p *process) accept(ctx context.Context, h tile.Handover) error {
	p.TakeOver(tile.HandedOver)
	for {
		if s := p.Status(); s.State == tile.Serving && s.Epoch > h.Epoch {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// players send actions to the owner that redirects name, each until it has an outcome.
type players struct {
	t       *testing.T
	find    func(contact string) *process
	running sync.WaitGroup
	mu      sync.Mutex
	done    map[string]int
	stopped chan struct{}

	abandoned atomic.Bool
}

func play(t *testing.T, n int, at *process, find func(string) *process) *players {
	l := &players{t: t, find: find, done: map[string]int{}, stopped: make(chan struct{})}
	for i := range n {
		l.running.Go(func() { l.play(i, at) })
	}
	t.Cleanup(func() { // a test that fails must not leave them playing: the bubble would never end
		l.abandoned.Store(true)
		l.running.Wait()
	})
	return l
}

func (l *players) play(player int, at *process) {
	for n := 0; ; n++ {
		select {
		case <-l.stopped:
			return
		default:
		}
		if l.abandoned.Load() {
			return
		}
		word := fmt.Sprintf("%d.%d", player, n)
		for !l.abandoned.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			o, err := at.Submit(ctx, tile.Intent{Tile: testTile, ActionID: word, Body: []byte(word)})
			cancel()
			if err == nil {
				assert.Equal(l.t, stream.Applied, o.Outcome)
				l.mu.Lock()
				l.done[word]++
				l.mu.Unlock()
				break
			}
			time.Sleep(10 * time.Millisecond) // what the answer took on its way
			contact := ""                     // ask the routing ladder
			var away *tile.RedirectError
			var unresolved *tile.UnresolvedError
			switch {
			case errors.As(err, &away):
				contact = away.Contact
			case errors.As(err, &unresolved):
				contact = unresolved.Contact
			}
			if next := l.find(contact); next != nil {
				at = next
			}
		}
	}
}

// stop ends the game and requires that the history has every action that has an outcome, once.
func (l *players) stop(w *world) {
	l.t.Helper()
	close(l.stopped)
	l.running.Wait()
	count := map[string]int{}
	for _, word := range w.history() {
		count[word]++
	}
	require.Equal(l.t, l.done, count)
}

func TestDrainHandsOverWithinATickAndLosesNothing(t *testing.T) {
	for _, warm := range []bool{true, false} {
		for i := range 10 {
			t.Run(fmt.Sprintf("warm=%v/%d", warm, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { handOverUnderLoad(t, warm, i) })
			})
		}
	}
}

func handOverUnderLoad(t *testing.T, warm bool, i int) {
	w := newWorld(t)
	var mu sync.Mutex
	all := map[string]*process{}
	find := func(contact string) *process {
		mu.Lock()
		defer mu.Unlock()
		return all[contact]
	}
	var given fence.Position
	cfg := tile.Config{ConfirmEvery: never, Follow: warm}
	start := func(contact string, cfg tile.Config) *process {
		p := w.process(contact, cfg)
		mu.Lock()
		defer mu.Unlock()
		all[contact] = p
		return p
	}
	w.more.Handover = func(ctx context.Context, h tile.Handover) error {
		given = h.Position
		next := find(h.To)
		if next == nil {
			cold := cfg
			cold.TakeOver = true
			next = start(h.To, cold)
		}
		return next.accept(ctx, h)
	}
	first := cfg
	first.Follow = false
	at := start("p0", first)
	l := play(t, 5, at, find)
	for n := 1; n <= 4; n++ {
		to := fmt.Sprintf("p%d", n)
		if warm {
			start(to, cfg)
		}
		time.Sleep(time.Duration(2000+i*53) * time.Millisecond)
		writes := -1
		began := time.Now()
		require.NoError(t, at.Drain(t.Context(), to))
		took := time.Since(began)
		assert.Less(t, took, 500*time.Millisecond, "one tick")
		at.line.set(func(l *line) { writes = l.writes })
		<-at.done
		require.NoError(t, at.err)
		s := at.Status()
		assert.Equal(t, tile.Stopped, s.State)
		assert.Equal(t, to, s.Successor.Contact)
		assert.EqualValues(t, n+1, s.Successor.Epoch)
		assert.Equal(t, given, s.Position, "nothing is committed after the position that was given")
		at.asks(t, to)
		time.Sleep(5 * time.Second)
		at.line.set(func(l *line) { assert.Equal(t, writes, l.writes) })
		at = find(to)
		if warm {
			took := at.takeovers()
			require.Len(t, took, 1)
			assert.Equal(t, tile.HandedOver, took[0].Why)
			assert.True(t, took[0].Warm)
		}
	}
	l.stop(w)
	require.Greater(t, len(l.done), 100)
	require.NoError(t, at.drain())
	assert.Equal(t, w.history(), at.rules.Words)
}

func TestHandOverThatFailsLeavesTheTileWhereItIs(t *testing.T) {
	for name, f := range map[string]func(a *process) func(context.Context, tile.Handover) error{
		"refused": func(*process) func(context.Context, tile.Handover) error {
			return func(context.Context, tile.Handover) error { return errors.New("no") }
		},
		"no answer": func(*process) func(context.Context, tile.Handover) error {
			return func(ctx context.Context, _ tile.Handover) error { <-ctx.Done(); return ctx.Err() }
		},
		"a lie": func(*process) func(context.Context, tile.Handover) error {
			return func(context.Context, tile.Handover) error { return nil }
		},
		"no authority either": func(a *process) func(context.Context, tile.Handover) error {
			return func(context.Context, tile.Handover) error {
				a.line.set(func(l *line) { l.authority = true })
				return errors.New("reset")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var a *process
				a = w.with(tile.Seams{Handover: func(ctx context.Context, h tile.Handover) error {
					return f(a)(ctx,
						h)
				}}).process("a:1", tile.Config{})
				l := play(t, 3, a, func(string) *process { return a })
				time.Sleep(3 * time.Second)
				require.Error(t, a.Drain(t.Context(), "b:1"))
				assert.Equal(t, tile.Serving, a.Status().State)
				time.Sleep(3 * time.Second)
				l.stop(w)
				assert.EqualValues(t, 1, a.Status().Epoch)
				a.line.set(func(l *line) { l.authority = false })
				require.NoError(t, a.drain())
			})
		})
	}
}

func TestHandOverWhoseAnswerIsLost(t *testing.T) {
	for _, authority := range []bool{true, false} {
		t.Run(fmt.Sprintf("authority=%v", authority), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				all := map[string]*process{}
				a := w.with(tile.Seams{Handover: func(ctx context.Context, h tile.Handover) error {
					require.NoError(t, all[h.To].accept(ctx, h))
					all["a:1"].line.set(func(l *line) { l.authority = !authority })
					return errors.New("connection reset")
				}}).process("a:1", tile.Config{})
				b := w.process("b:1", following)
				all["a:1"], all["b:1"] = a, b
				l := play(t, 3, a, func(contact string) *process { return all[contact] })
				time.Sleep(5 * time.Second)
				err := a.Drain(t.Context(), "b:1")
				if authority {
					require.NoError(t, err, "the authority knows")
					<-a.done
					require.NoError(t, a.err)
				} else {
					require.Error(t, err)
					time.Sleep(5 * time.Second)
					assert.True(t, a.Status().Pending,
						"the store refuses; the tile freezes until the authority says why")
					a.line.set(func(l *line) { l.authority = false })
					<-a.done
					require.ErrorIs(t, a.err, tile.ErrSuperseded)
				}
				a.asks(t, "b:1")
				time.Sleep(15 * time.Second)
				l.stop(w)
				require.NoError(t, b.drain())
			})
		})
	}
}

func TestSuccessorDiesDuringTheHandOver(t *testing.T) {
	for _, claimed := range []bool{true, false} {
		t.Run(fmt.Sprintf("claimed=%v", claimed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.with(tile.Seams{Handover: func(ctx context.Context, h tile.Handover) error {
					if claimed {
						_, err := w.authority.Promote(ctx,
							fence.Claim{Tile: h.Tile, Contact: h.To, ID: fence.NewClaimID(), Expected: h.Epoch})
						require.NoError(t, err)
					}
					return errors.New("connection reset")
				}}).process("a:1", tile.Config{})
				c := w.process("c:1", following)
				all := map[string]*process{"a:1": a, "": c, "c:1": c}
				l := play(t, 3, a, func(contact string) *process {
					if contact == "b:1" {
						return c // no process is there; the clients ask the routing ladder
					}
					return all[contact]
				})
				time.Sleep(3 * time.Second)
				err := a.Drain(t.Context(), "b:1")
				if claimed {
					require.NoError(t, err, "the tile is b's, and a must not write")
					<-a.done
					c.eventually(t, tile.Serving, 10*time.Second)
				} else {
					require.Error(t, err)
					assert.Equal(t, tile.Serving, a.Status().State)
				}
				time.Sleep(3 * time.Second)
				l.stop(w)
			})
		})
	}
}

func TestDrainArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hand := func(context.Context, tile.Handover) error { return errors.New("unused") }
		a := w.process("a:1", tile.Config{})
		assert.ErrorIs(t, a.Drain(t.Context(), "b:1"), fence.ErrInvalidArgument, "without Handover")
		b := w.with(tile.Seams{Handover: hand}).process("b:1", tile.Config{Follow: true})
		a.say(t, "", "one")
		time.Sleep(2 * time.Second)
		assert.ErrorIs(t, b.Drain(t.Context(), "b:1"), fence.ErrInvalidArgument, "to itself")
		var away *tile.RedirectError
		require.ErrorAs(t, b.Drain(t.Context(), "c:1"), &away, "a follower owns nothing")
		assert.Equal(t, "a:1", away.Contact)
		require.NoError(t, b.drain())
		require.NoError(t, a.Drain(t.Context(), ""))
		<-a.done
		g, err := w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		assert.False(t, g.Held(), "an empty successor releases the tile")
		require.ErrorAs(t, a.Drain(t.Context(), ""), &away)
	})
}

func TestHandOverIsRefusedWhileTheReplicasDoNotConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		asked := false
		var confirmed sync.Map
		a := w.with(tile.Seams{
			Handover: func(context.Context, tile.Handover) error { asked = true; return errors.New("no") },
		}).process("a:1", tile.Config{Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
			r, err := w.store.Commit(ctx, c)
			if _, ok := confirmed.Load("yes"); !ok && err == nil && c.Replicas != 0 {
				return fence.Receipt{}, &fence.UnconfirmedError{Tile: c.Tile, Receipt: r, Want: 2}
			}
			return r, err
		}})
		a.say(t, "", "one")
		require.Error(t, a.Drain(t.Context(), "b:1"))
		assert.False(t, asked, "a successor must build on nothing that a failover can undo")
		assert.Equal(t, tile.Serving, a.Status().State)
		confirmed.Store("yes", true)
		require.Error(t, a.Drain(t.Context(), "b:1"))
		assert.True(t, asked)
		require.NoError(t, a.drain())
	})
}

// TestADrainWhoseLastTickHangs: the processor ends without the loop that took the call, and Drain returns.
func TestADrainWhoseLastTickHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rules := &brittle{}
		f := w.with(tile.Seams{
			Handover: func(context.Context, tile.Handover) error { return nil },
		}).fragile("a:1", tile.Config{Timeouts: tile.Timeouts{RulesTimeout: 10 * time.Second}}, rules)
		f.say(t, "first", "first")
		release := make(chan struct{})
		drained := make(chan error, 1)
		go func() { drained <- f.Drain(context.Background(), "b:1") }()
		rules.set(func() { rules.resolve = func([]tile.Intent) { <-release } })
		<-f.done
		synctest.Wait()
		require.Len(t, drained, 1)
		require.ErrorIs(t, <-drained, tile.ErrRedirect)
		require.Error(t, f.err)
		close(release)
	})
}
