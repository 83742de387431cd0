package tile_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
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

// passing claims a tile for somebody who gives it back at once.
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
