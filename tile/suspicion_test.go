package tile_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// A member that takes the contact of a living owner and dies, over and over, makes gossip report the owner's death.
// The owner keeps its tile however slowly it refreshes its hash; when it does die, it is noticed no later for all that.
func TestReportedDeathOfALivingOwnerMovesNothing(t *testing.T) {
	for name, cfg := range map[string]tile.Config{
		"by default":                {},
		"suspected by reports only": {SuspectAfter: tile.NeverSuspect},
		"refreshes seldom":          {RefreshEvery: 20},
		"fast ticks":                {TickInterval: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.process("a:1", cfg)
				a.say(t, "", "one")
				cfg.Follow = true
				f := w.process("f:1", cfg)
				time.Sleep(20 * time.Second)
				for i := range 300 {
					f.TakeOver(tile.OwnerDied)
					f.OwnerLives()
					time.Sleep(time.Duration(7*i) * time.Millisecond)
					if i%30 == 0 {
						a.say(t, "", fmt.Sprint(i))
					}
					require.Equal(t, tile.Following, f.Status().State, "at report %d", i)
				}
				require.EqualValues(t, 1, a.Status().Epoch)
				a.kill()
				tick, refresh := max(cfg.TickInterval, 20*time.Millisecond), max(cfg.RefreshEvery, 1)
				if cfg.TickInterval == 0 {
					tick = 500 * time.Millisecond
				}
				f.TakeOver(tile.OwnerDied)
				if name != "refreshes seldom" {
					f.OwnerLives() // an impostor is still there
				}
				f.eventually(t, tile.Serving, time.Duration(refresh+1)*tick+tick)
				took := f.takeovers()
				require.Len(t, took, 1)
				assert.Equal(t, tile.OwnerDied, took[0].Why)
				assert.GreaterOrEqual(t, took[0].Silent, min(2*tick, time.Second))
				require.NoError(t, f.drain())
			})
		})
	}
}

// A follower that has seen the owner hash stand still for long enough takes the tile at once.
func TestReportedDeathOfASilentOwnerIsBelievedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		f := w.process("f:1", tile.Config{Follow: true, SuspectAfter: tile.NeverSuspect})
		time.Sleep(20 * time.Second)
		a.kill()
		time.Sleep(10 * time.Second)
		f.TakeOver(tile.OwnerDied)
		f.eventually(t, tile.Serving, 10*time.Millisecond)
		require.NoError(t, f.drain())
	})
}

// While a follower looks into reports it neither forgets nor delays what an operator or the owner asks for.
func TestReportedDeathDoesNotDelayAnOrder(t *testing.T) {
	for _, why := range []tile.Suspicion{tile.HandedOver, tile.Ordered} {
		t.Run(why.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.process("a:1", tile.Config{})
				a.say(t, "", "one")
				f := w.process("f:1", following)
				time.Sleep(5 * time.Second)
				f.pause() // so that the orders wait
				time.Sleep(time.Second)
				for range 3 {
					f.TakeOver(tile.OwnerDied)
				}
				f.TakeOver(why)
				f.TakeOver(tile.OwnerDied)
				f.resume()
				f.eventually(t, tile.Serving, time.Second)
				assert.Equal(t, why, f.takeovers()[0].Why)
				assert.Equal(t, fence.Epoch(2), f.Status().Epoch)
				require.NoError(t, f.drain())
			})
		})
	}
}

// An owner that commits and that no member reaches is cut off from its clients, too. It loses the tile, but not to
// a report that is withdrawn in time.
func TestOwnerThatIsCutOffFromTheMembersIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "one")
		f := w.process("f:1", following)
		time.Sleep(5 * time.Second)
		for range 20 {
			f.TakeOver(tile.OwnerDied)
			time.Sleep(700 * time.Millisecond)
			f.OwnerLives()
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, tile.Following, f.Status().State)
		f.TakeOver(tile.OwnerDied)
		began := time.Now()
		f.eventually(t, tile.Serving, 1100*time.Millisecond)
		assert.GreaterOrEqual(t, time.Since(began), time.Second)
		<-a.done
		require.ErrorIs(t, a.err, tile.ErrSuperseded)
		require.NoError(t, f.drain())
	})
}
