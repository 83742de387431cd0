package tile_test

import (
	"context"
	"fmt"
	"sync"
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

// overtaken is an authority at which something happens just before the nth mint is asked for.
type overtaken struct {
	fence.Authority
	before map[int]func()
	mu     sync.Mutex
	claims []fence.Claim
}

func (o *overtaken) note(c fence.Claim) {
	o.mu.Lock()
	o.claims = append(o.claims, c)
	n := len(o.claims)
	o.mu.Unlock()
	if f := o.before[n]; f != nil {
		f()
	}
}

func (o *overtaken) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	o.note(c)
	return o.Authority.Claim(ctx, c)
}

func (o *overtaken) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	o.note(c)
	return o.Authority.Promote(ctx, c)
}

// passing claims a tile for a process that gives it back at once.
func (w *world) passing(expected fence.Epoch, held bool) {
	w.t.Helper()
	c := fence.Claim{Tile: testTile, Contact: "z:1", ID: fence.NewClaimID(), Expected: expected}
	ask := w.authority.Claim
	if held {
		ask = w.authority.Promote
	}
	g, err := ask(w.t.Context(), c)
	require.NoError(w.t, err)
	require.NoError(w.t, w.authority.Release(w.t.Context(), g))
}

// TestTileThatIsFreeAgainIsClaimedAgain: what changes between the look-up and the claim, and leaves the tile free,
// does not end the boot; and each new expectation is an attempt of its own.
func TestTileThatIsFreeAgainIsClaimedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*world) map[int]func()
		epochs []fence.Epoch // expected by each claim
	}{
		"claimed and released": {func(w *world) map[int]func() {
			return map[int]func(){1: func() { w.passing(1, false) }, 2: func() { w.passing(2, false) }}
		}, []fence.Epoch{1, 2, 3}},
		"record retired": {func(w *world) map[int]func() {
			return map[int]func(){1: func() {
				n, err := w.authority.Retire(w.t.Context(), time.Second, 10)
				require.NoError(w.t, err)
				require.Equal(w.t, 1, n)
			}}
		}, []fence.Epoch{1, 0}},
		"claimed and released by another while it starts over": {func(w *world) map[int]func() {
			return map[int]func(){
				1: func() {
					w.store.Update(testTile, func(s *memfence.State) {
						s.Owner = fence.Owner{Tile: testTile, Epoch: 40, Contact: "g:1", Position: s.Last()}
					})
				},
				2: func() { w.passing(2, true) },
			}
		}, []fence.Epoch{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				first := w.start("y:1", tile.Config{})
				first.say(t, "", "one")
				require.NoError(t, first.drain())
				time.Sleep(2 * time.Second)
				authority := &overtaken{Authority: w.authority, before: c.before(w)}
				p := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: w.log}, "a:1", tile.Config{})
				p.say(t, "", "two")
				require.NoError(t, p.drain())
				assert.Equal(t, []string{"one", "two"}, w.history())
				ids := map[fence.ClaimID]bool{}
				for i, claim := range authority.claims {
					assert.Equal(t, c.epochs[i], claim.Expected)
					ids[claim.ID] = true
				}
				assert.Len(t, authority.claims, len(c.epochs))
				assert.Len(t, ids, len(c.epochs), "a new expectation takes a new ClaimID")
			})
		})
	}
}

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
