package tiletest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tiletest"
)

// failing is a test that is expected to fail: it ends with what it would fail with.
type failing struct{ testing.TB }

type failure string

func (failing) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func failureOf(t *testing.T, f func(failing)) (why string) {
	defer func() {
		if p, ok := recover().(failure); ok {
			why = string(p)
		}
	}()
	f(failing{t})
	return ""
}

func TestStateSaysThatAFollowerDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := failureOf(t, func(ft failing) {
			c := tiletest.NewCluster(ft, 0, newPurse("follower ignores"), nil)
			c.Start("a:1")
			c.Start("b:1")
			c.Submit(tile.Intent{Body: []byte("a 3")})
			c.State()
		})
		assert.Contains(t, why, "The owner, a:1, and the follower b:1 differ at")
		assert.Contains(t, why, "look for: ")
	})
}

func TestStateSaysThatAFollowerDoesNotFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := failureOf(t, func(ft failing) {
			c := tiletest.NewCluster(ft, 0, newPurse("follower refuses"), &tile.Config{SnapshotEvery: 1000})
			c.Start("a:1")
			c.Start("b:1")
			c.Submit(tile.Intent{Body: []byte("a 3")})
			c.State()
		})
		assert.Contains(t, why, "a follower does not follow after a minute")
		assert.Contains(t, why, "b:1 is following at")
	})
}

// clock is a game in which something happens at every tick.
type clock struct{ doorbell }

func (c *clock) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	events, outcomes := c.doorbell.Resolve(tick, intents)
	return append(events, []byte("tick")), outcomes
}

// TestRulesAreLookedAtWhileAllWait is for -race: what is seen lies between ticks.
func TestRulesAreLookedAtWhileAllWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiletest.NewCluster(t, 0, func(fence.TileID) (tile.Rules, error) { return &clock{}, nil },
			&tile.Config{SnapshotEvery: 3})
		hosts := []*tiletest.Host{c.Start("a:1"), c.Start("b:1")}
		c.Owner()
		last := [2]int{}
		for range 50 {
			time.Sleep(time.Second)
			for i, h := range hosts {
				h.Look(func(rules tile.Rules) {
					assert.GreaterOrEqual(t, rules.(*clock).rings, last[i])
					last[i] = rules.(*clock).rings
				})
			}
		}
		assert.InDelta(t, 100, last[0], 3, "2 a second")
		assert.InDelta(t, 100, last[1], 3)
	})
}

func TestHostsStopAndAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiletest.NewCluster(t, 0, newDoorbell, nil)
		a := c.Start("a:1")
		assert.Equal(t, stream.Applied, c.Submit(tile.Intent{}))
		c.Stop(a)
		b := c.Start("b:1")
		c.Await(b)
		assert.Len(t, c.State(), 1)
		c.Kill(b)
		assert.Contains(t, failureOf(t, func(ft failing) {
			none := tiletest.NewCluster(ft, 0, newDoorbell, nil)
			none.Submit(tile.Intent{})
		}), "an intent has no outcome after a minute: no host lives")
	})
}
