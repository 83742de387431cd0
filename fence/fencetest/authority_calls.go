package fencetest

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func argumentsOfClaim(t *testing.T, a fence.Authority) {
	for _, test := range []struct {
		name, field string
		edit        func(*fence.Claim)
	}{
		{"no tile", "tile", func(c *fence.Claim) { c.Tile = 0 }},
		{"no contact", "contact", func(c *fence.Claim) { c.Contact = "" }},
		{"long contact", "contact", func(c *fence.Claim) { c.Contact = strings.Repeat("x", fence.MaxContact+1) }},
		{"contact with a zero byte", "contact", func(c *fence.Claim) { c.Contact = "a\x00b" }},
		{"contact not UTF-8", "contact", func(c *fence.Claim) { c.Contact = "a\xff" }},
		{"no ID", "claim ID", func(c *fence.Claim) { c.ID = fence.ClaimID{} }},
		{"expected too high", "epoch", func(c *fence.Claim) { c.Expected = fence.MaxNumber }},
		{"above too high", "epoch", func(c *fence.Claim) { c.Floor = fence.MaxNumber }},
		{"above far too high", "epoch", func(c *fence.Claim) { c.Floor = 1<<64 - 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			tile := newTile()
			c := newClaim(tile, "a:1")
			test.edit(&c)
			g, err := a.Claim(t.Context(), c)
			requireArgument(t, err, test.field)
			require.Zero(t, g)
			requireNoRow(t, a, tile)

			held := mustClaim(t, a, newClaim(tile, "a:1"))
			p := newPromotion(tile, "b:1", held.Epoch)
			test.edit(&p)
			g, err = a.Promote(t.Context(), p)
			requireArgument(t, err, test.field)
			require.Zero(t, g)
			requireRow(t, a, held)
		})
	}
	longest := newClaim(newTile(), strings.Repeat("\u00e9", fence.MaxContact/2)+"x")
	require.Len(t, longest.Contact, fence.MaxContact)
	requireRow(t, a, mustClaim(t, a, longest))
}

func argumentsOfOthers(t *testing.T, a fence.Authority) {
	_, err := a.Lookup(t.Context(), 0)
	requireArgument(t, err, "tile")

	held := mustClaim(t, a, newClaim(newTile(), "a:1"))
	for _, test := range []struct {
		field string
		edit  func(*fence.Grant)
	}{
		{"tile", func(g *fence.Grant) { g.Tile = 0 }},
		{"epoch", func(g *fence.Grant) { g.Epoch = 0 }},
		{"epoch", func(g *fence.Grant) { g.Epoch = fence.MaxNumber + 1 }},
		{"claim ID", func(g *fence.Grant) { g.ID = fence.ClaimID{} }},
	} {
		g := held
		test.edit(&g)
		requireArgument(t, a.Release(t.Context(), g), test.field)
		requireRow(t, a, held)
	}
}

// contextDone: a call under a context that is done may be refused or may be cut off, but it fails, and
// what it says about its outcome is true.
func contextDone(t *testing.T, a fence.Authority) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{done, late} {
		c := newClaim(newTile(), "a:1")
		g, err := a.Claim(ctx, c)
		require.Zero(t, g)
		if notApplied(t, err, c.Tile) {
			requireNoRow(t, a, c.Tile)
		}
		held := mustClaim(t, a, c)
		requireGrant(t, minted(c, 1), held)

		p := newPromotion(c.Tile, "b:1", 1)
		g, err = a.Promote(ctx, p)
		require.Zero(t, g)
		if notApplied(t, err, c.Tile) {
			requireRow(t, a, held)
		}
		held = mustPromote(t, a, p)
		requireGrant(t, minted(p, 2), held)

		_, err = a.Lookup(ctx, c.Tile)
		require.True(t, notApplied(t, err, c.Tile))

		if notApplied(t, a.Release(ctx, held), c.Tile) {
			requireRow(t, a, held)
		}
		require.NoError(t, a.Release(t.Context(), held))
		requireRow(t, a, released(held))
	}
}

// contextEndsMidway cancels calls after random delays, up to what a call takes, and checks that whatever
// came back is true and that the same call again settles it.
func contextEndsMidway(t *testing.T, a fence.Authority) {
	rng, _ := seeded(t)
	took := timeOf(t, a)
	var cut int
	for range 100 {
		c := newClaim(newTile(), "a:1")
		g, err := cutOff(t, rng, took, func(ctx context.Context) (fence.Grant, error) { return a.Claim(ctx, c) })
		switch {
		case err == nil:
			requireGrant(t, minted(c, 1), g)
			requireRow(t, a, g)
		case notApplied(t, err, c.Tile):
			requireNoRow(t, a, c.Tile)
		}
		requireGrant(t, minted(c, 1), mustClaim(t, a, c))

		p := newPromotion(c.Tile, "b:1", 1)
		g, err = cutOff(t, rng, took, func(ctx context.Context) (fence.Grant, error) { return a.Promote(ctx, p) })
		switch {
		case err == nil:
			requireGrant(t, minted(p, 2), g)
			requireRow(t, a, g)
		case notApplied(t, err, c.Tile):
			requireRow(t, a, minted(c, 1))
		}
		held := mustPromote(t, a, p)
		requireGrant(t, minted(p, 2), held)

		_, err = cutOff(t, rng, took, func(ctx context.Context) (fence.Grant, error) {
			return held, a.Release(ctx, held)
		})
		if err != nil {
			cut++
		}
		switch {
		case err == nil:
			requireRow(t, a, released(held))
		case notApplied(t, err, c.Tile):
			requireRow(t, a, held)
		}
		require.NoError(t, a.Release(t.Context(), held))
		requireRow(t, a, released(held))
	}
	t.Logf("%d of 100 releases were cut off", cut)
}

// timeOf is how long a claim of a fresh tile takes here, connections and caches being warm.
func timeOf(t *testing.T, a fence.Authority) time.Duration {
	t.Helper()
	mustClaim(t, a, newClaim(newTile(), "a:1"))
	began := time.Now()
	const calls = 5
	for range calls {
		mustClaim(t, a, newClaim(newTile(), "a:1"))
	}
	return time.Since(began) / calls
}

func cutOff(t *testing.T, rng *rand.Rand, took time.Duration,
	call func(context.Context) (fence.Grant, error)) (fence.Grant, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(took)*3/2+1)))
	defer cancel()
	return call(ctx)
}
