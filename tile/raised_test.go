package tile_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestARaisedTickForgetsNothing: the tick of the owner hash is raised in the store. The next owner serves, and knows
// the outcome of an action that is retried.
func TestARaisedTickForgetsNothing(t *testing.T) {
	for _, raised := range []fence.Tick{1_000_000, 1 << 44, fence.MaxNumber} {
		for _, follow := range []bool{false, true} {
			t.Run(fmt.Sprint(raised, follow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					a := w.process("a:1", tile.Config{SnapshotEvery: 4})
					require.Equal(t, stream.Applied, a.say(t, "pay", "paid"))
					time.Sleep(10 * time.Second)
					a.say(t, "", "more")
					s := a.Status()
					a.line.set(func(l *line) { l.store = true })
					raise := fence.Commit{
						Tile: testTile, Epoch: s.Epoch, Contact: "a:1", Prev: s.Position, Tick: raised,
					}
					_, err := w.store.Commit(t.Context(), raise)
					require.NoError(t, err)
					b := w.start("b:1", tile.Config{Follow: follow, TakeOver: !follow})
					if follow {
						time.Sleep(3 * time.Second)
						b.TakeOver(tile.Ordered)
					}
					time.Sleep(10 * time.Second)
					require.Equal(t, tile.Serving, b.Status().State)
					assert.Equal(t, stream.Applied, b.say(t, "pay", "paid"))
					b.say(t, "", "last")
					assert.Equal(t, []string{"paid", "more", "last"}, w.history())
					time.Sleep(tile.DefaultRememberFor - 20*time.Second)
					assert.Equal(t, stream.Applied, b.say(t, "pay", "paid"))
					assert.Len(t, w.history(), 3)
					require.NoError(t, b.drain())
				})
			})
		}
	}
}

// TestARaisedHeadIsClaimedSeldom: the sequence of the head is raised as far as it goes, so that no owner can go on from
// there. Followers ask for the tile less and less often, and say what is wrong.
func TestARaisedHeadIsClaimedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.say(t, "", "word")
		s := a.Status()
		a.line.set(func(l *line) { l.store = true })
		g, err := w.authority.Promote(t.Context(), fence.Claim{Tile: testTile, Contact: "x:1", ID: fence.NewClaimID(),
			Expected: s.Epoch})
		require.NoError(t, err)
		_, err = w.store.Rebase(t.Context(), fence.Rebase{Tile: testTile, Epoch: g.Epoch, Contact: "x:1",
			Seq: fence.MaxNumber, Tick: s.Tick, At: time.Now(), Replaces: &s.Position})
		require.NoError(t, err)
		var refused []error
		b := w.start("b:1", tile.Config{Follow: true, SuspectAfter: 250 * time.Millisecond,
			TickInterval: 50 * time.Millisecond, Hooks: tile.Hooks{Refused: func(i tile.RefusalInfo) {
				refused = append(refused, i.Err)
			}}})
		time.Sleep(2 * time.Minute)
		g, err = w.authority.Lookup(t.Context(), testTile)
		require.NoError(t, err)
		assert.Greater(t, g.Epoch, fence.Epoch(2), "it tries")
		assert.Less(t, g.Epoch, fence.Epoch(60))
		require.NoError(t, b.drain())
	})
}
