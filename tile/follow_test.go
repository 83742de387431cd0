package tile_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

var following = tile.Config{Follow: true}

func TestFollowerIsWarmAndSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.process("f:1", following)
		f.asks(t, "")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, tile.Following, f.Status().State, "a tile that has never been begun is waited for")
		a := w.process("a:1", tile.Config{SnapshotEvery: 7})
		for i := range 100 {
			a.say(t, fmt.Sprint("act", i), fmt.Sprint(i))
		}
		time.Sleep(3 * time.Second)
		s := f.Status()
		assert.Equal(t, tile.Following, s.State)
		assert.Equal(t, a.Status().Position, s.Position)
		assert.Equal(t, "a:1", s.Owner.Contact)
		assert.Greater(t, s.Heat, 0.5)
		assert.InDelta(t, a.Status().Heat, s.Heat, 0.5, "a tick or so behind, and without what a reload skipped")
		assert.Zero(t, s.Epoch)
		f.asks(t, "a:1")
		err := f.Inspect(t.Context(), func(tile.Rules, fence.Position) { t.Error("a follower answered a read") })
		assert.ErrorIs(t, err, tile.ErrRedirect)
		assert.ErrorIs(t, f.Drain(t.Context(), ""), nil)
		<-f.done
		require.NoError(t, f.err)
		assert.Len(t, f.rules.Words, 100)
		assert.Zero(t, f.line.writes)
		assert.Less(t, f.line.snapshots, 30,
			"it folds the tail; a snapshot that trims what it was about to read costs one reading")
		assert.Equal(t, tile.Stopped, f.Status().State)
		f.asks(t, "a:1")
		require.NoError(t, a.drain())
	})
}

func TestSilentOwnerIsTakenOverWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "act", "one")
		f := w.process("f:1", following)
		for i := range 10 {
			a.say(t, "", fmt.Sprint(i))
		}
		read := f.line.snapshots
		died := time.Now()
		a.pause() // a partition: it lives, and no process hears of it
		f.eventually(t, tile.Serving, 5*time.Second)
		detection := time.Since(died)
		assert.Greater(t, detection, 1500*time.Millisecond)
		assert.Less(t, detection, 3500*time.Millisecond)
		took := f.takeovers()
		require.Len(t, took, 1)
		assert.Equal(t, tile.SilentOwner, took[0].Why)
		assert.True(t, took[0].Warm)
		assert.GreaterOrEqual(t, took[0].Silent, 2*time.Second)
		assert.EqualValues(t, 2, took[0].Epoch)
		assert.Zero(t, took[0].Minted+took[0].Replayed+took[0].Installed, "nothing takes time here")
		assert.Equal(t, read, f.line.snapshots, "no full replay")
		assert.Equal(t, stream.Applied, f.say(t, "act", "one"), "it remembers the actions it has seen")
		f.say(t, "", "after")
		a.resume()
		<-a.done
		require.ErrorIs(t, a.err, tile.ErrSuperseded)
		a.asks(t, "f:1")
		require.NoError(t, f.drain())
		assert.Equal(t, f.rules.Words, w.history())
		assert.Len(t, w.history(), 12)
	})
}

func TestOwnerThatIsAliveIsNotSuspected(t *testing.T) {
	for name, cfg := range map[string]tile.Config{
		"idle":                   {},
		"idle, refreshes seldom": {RefreshEvery: 20},
		"never suspected":        {SuspectAfter: tile.NeverSuspect},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.process("a:1", cfg)
				a.say(t, "", "one")
				cfg.Follow = true
				f := w.process("f:1", cfg)
				time.Sleep(10 * time.Minute)
				assert.Equal(t, tile.Following, f.Status().State)
				assert.Equal(t, tile.Serving, a.Status().State)
				assert.EqualValues(t, 1, a.Status().Epoch)
				require.NoError(t, f.drain())
				if cfg.SuspectAfter == tile.NeverSuspect {
					a.kill()
					f = w.process("f:1", cfg)
					time.Sleep(10 * time.Minute)
					assert.Equal(t, tile.Following, f.Status().State)
					require.NoError(t, f.drain())
					return
				}
				require.NoError(t, a.drain())
			})
		})
	}
}

func TestStoreThatDoesNotAnswerSaysNothingAboutTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "one")
		f := w.process("f:1", following)
		time.Sleep(5 * time.Second)
		for range 3 {
			a.line.set(func(l *line) { l.store = true })
			f.line.set(func(l *line) { l.store = true })
			time.Sleep(20 * time.Second)
			a.line.set(func(l *line) { l.store = false })
			f.line.set(func(l *line) { l.store = false })
			time.Sleep(5 * time.Second)
		}
		assert.Equal(t, tile.Following, f.Status().State)
		f.pause() // the follower's own process stops
		time.Sleep(10 * time.Second)
		f.resume()
		time.Sleep(5 * time.Second)
		assert.Equal(t, tile.Following, f.Status().State)
		assert.EqualValues(t, 1, a.Status().Epoch)
		require.NoError(t, f.drain())
		require.NoError(t, a.drain())
	})
}

func TestOfTwoFollowersOneWinsAndTheOtherFollowsOn(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				owner := w.process("p0", tile.Config{})
				followers := []*process{w.process("p1", following), w.process("p2", following),
					w.process("p3", following)}
				owner.say(t, "", "0")
				time.Sleep(time.Duration(i) * 97 * time.Millisecond)
				for n := 1; n <= 3; n++ {
					owner.kill()
					time.Sleep(8 * time.Second)
					var serving []*process
					var rest []*process
					for _, f := range followers {
						switch f.Status().State {
						case tile.Serving:
							serving = append(serving, f)
						case tile.Following:
							rest = append(rest, f)
						}
					}
					require.Len(t, serving, 1)
					require.Len(t, rest, 3-n)
					owner, followers = serving[0], rest
					owner.say(t, "", fmt.Sprint(n))
					time.Sleep(time.Second)
					for _, f := range rest {
						f.asks(t, owner.contact)
						assert.Equal(t, owner.Status().Position, f.Status().Position)
					}
				}
				assert.Equal(t, []string{"0", "1", "2", "3"}, w.history())
				require.NoError(t, owner.drain())
			})
		})
	}
}

func TestOrderedTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.process("f:1", following)
		f.TakeOver(tile.Ordered)
		f.eventually(t, tile.Serving, time.Second)
		assert.EqualValues(t, 1, f.Status().Epoch, "a tile that had no owner")
		f.TakeOver(tile.Ordered)
		f.say(t, "", "one")
		g := w.process("g:1", following)
		time.Sleep(5 * time.Second)
		g.TakeOver(tile.Ordered)
		g.eventually(t, tile.Serving, time.Second)
		assert.EqualValues(t, 2, g.Status().Epoch)
		<-f.done
		require.ErrorIs(t, f.err, tile.ErrSuperseded, "an owner that was a follower stands down like any other")
		assert.Equal(t, tile.StoodDown, f.Status().State)
		require.NoError(t, g.drain())
	})
}

func TestReleasedTileIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "one")
		f := w.process("f:1", following)
		time.Sleep(5 * time.Second)
		require.NoError(t, a.drain())
		f.eventually(t, tile.Serving, 5*time.Second)
		require.NoError(t, f.drain())
		g := w.process("g:1", following)
		time.Sleep(40 * time.Second)
		assert.Equal(t, tile.Serving, g.Status().State, "also by one that saw the owner hash for its last moments only")
		require.NoError(t, g.drain())
		time.Sleep(time.Minute)
		h := w.process("h:1", following)
		h.eventually(t, tile.Serving, 5*time.Second) // and by one that never saw it
		require.NoError(t, h.drain())
		assert.Equal(t, []string{"one"}, w.history())
	})
}

func TestClaimantThatDiesBeforeItsInstallIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "one")
		f := w.process("f:1", following)
		time.Sleep(5 * time.Second)
		a.kill()
		g, err := w.authority.Promote(t.Context(), fence.Claim{Tile: testTile, Contact: "z:1", ID: fence.NewClaimID(),
			Expected: 1})
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		f.asks(t, "z:1") // it lost to one that may be about to serve
		f.eventually(t, tile.Serving, 10*time.Second)
		assert.Greater(t, f.Status().Epoch, g.Epoch)
		require.NoError(t, f.drain())
	})
}

func TestTakeOverThatFailsGoesBackToFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "one")
		var paced atomic.Int32
		cfg := following
		cfg.Pace = func(_ context.Context, s tile.Status, why tile.Suspicion) (func(), error) {
			assert.Equal(t, tile.Following, s.State)
			if paced.Add(1) == 1 {
				return nil, errors.New("not now")
			}
			return func() { paced.Add(100) }, nil
		}
		f := w.process("f:1", cfg)
		f.line.set(func(l *line) { l.authority = true })
		time.Sleep(5 * time.Second)
		a.kill()
		asked := make(chan error, 1)
		go func() {
			for {
				if _, err := f.Submit(context.Background(),
					tile.Intent{Tile: testTile, Body: []byte("x")}); err != nil &&
					f.Status().State == tile.Following {
					asked <- err
					return
				}
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(time.Minute)
		assert.ErrorIs(t, <-asked, tile.ErrRedirect)
		assert.Greater(t, paced.Load(), int32(100), "done is called also when it failed")
		assert.EqualValues(t, 0, f.Status().Epoch)
		f.line.set(func(l *line) { l.authority = false })
		f.eventually(t, tile.Serving, 20*time.Second)
		require.NoError(t, f.drain())
	})
}

func TestOwnerThatRecoversWhileItsFollowerWaitsForItsTurnKeepsTheTile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "one")
		cfg := following
		cfg.Pace = func(context.Context, tile.Status, tile.Suspicion) (func(), error) {
			a.resume()
			time.Sleep(2 * time.Second)
			return nil, nil
		}
		f := w.process("f:1", cfg)
		time.Sleep(3 * time.Second)
		a.pause()
		time.Sleep(20 * time.Second)
		assert.Equal(t, tile.Following, f.Status().State)
		assert.Equal(t, tile.Serving, a.Status().State)
		require.NoError(t, f.drain())
		require.NoError(t, a.drain())
	})
}

func TestFollowerReloadsWhatDoesNotContinueItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg := tile.Config{ConfirmEvery: never}
		a := w.process("a:1", cfg)
		f := w.process("f:1", tile.Config{Follow: true, SuspectAfter: time.Minute})
		for i := range 6 {
			a.say(t, "", fmt.Sprint(i))
		}
		time.Sleep(5 * time.Second)
		at := f.Status().Position

		a.pause()
		w.loseTail(3)
		time.Sleep(10 * time.Second)
		assert.Equal(t, at.Seq-3, f.Status().Position.Seq, "the stream went back")
		a.resume()
		a.say(t, "", "6")
		time.Sleep(10 * time.Second)
		assert.Equal(t, a.Status().Position, f.Status().Position, "and was put back")

		w.store.Update(testTile, func(s *memfence.State) { s.Owner.Epoch, s.Owner.Contact = 40, "ghost:1" })
		a.say(t, "", "7") // rebases
		time.Sleep(10 * time.Second)
		assert.Equal(t, a.Status().Position, f.Status().Position)

		f.TakeOver(tile.Ordered)
		f.eventually(t, tile.Serving, time.Second)
		assert.True(t, f.takeovers()[0].Warm)
		require.NoError(t, f.drain())
		assert.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7"}, f.rules.Words)
		assert.Equal(t, f.rules.Words, w.history())
		<-a.done
	})
}

func TestFollowerOfADamagedStreamKeepsTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{SnapshotEvery: 1 << 20})
		f := w.process("f:1", following)
		a.say(t, "", "one")
		a.pause()
		time.Sleep(time.Second)
		var good []byte
		damage := func(s *memfence.State) {
			e := &s.Entries[len(s.Entries)-1]
			good, e.Frame = e.Frame, []byte("?")
		}
		f.pause() // or it reads the entry before that is damaged
		synctest.Wait()
		a.resume()
		a.say(t, "", "two")
		w.store.Update(testTile, damage)
		f.resume()
		a.say(t, "", "three")
		time.Sleep(5 * time.Second)
		a.kill()
		time.Sleep(time.Minute)
		assert.Equal(t, tile.Following, f.Status().State, "it does not take what it cannot read")
		g, err := w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		assert.EqualValues(t, 1, g.Epoch)
		f.TakeOver(tile.Ordered)
		time.Sleep(time.Minute)
		assert.Equal(t, tile.Following, f.Status().State)
		w.store.Update(testTile, func(s *memfence.State) { s.Entries[len(s.Entries)-2].Frame = good })
		f.eventually(t, tile.Serving, time.Minute)
		require.NoError(t, f.drain())
		assert.Equal(t, []string{"one", "two", "three"}, w.history())
	})
}

func TestSilenceIsNoLongerThanItWasWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "one")
		f := w.process("f:1", tile.Config{Follow: true, SuspectAfter: 4 * time.Second})
		time.Sleep(5 * time.Second)
		a.line.set(func(l *line) { l.store = true })
		f.line.set(func(l *line) { l.store = true })
		time.Sleep(20 * time.Second)
		f.line.set(func(l *line) { l.store = false })
		time.Sleep(2900 * time.Millisecond) // less than it may be silent, and nothing of the outage counts
		a.line.set(func(l *line) { l.store = false })
		time.Sleep(10 * time.Second)
		assert.Equal(t, tile.Following, f.Status().State)
		assert.EqualValues(t, 1, a.Status().Epoch)
		require.NoError(t, f.drain())
		require.NoError(t, a.drain())
	})
}
