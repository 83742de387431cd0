package tiletest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

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
