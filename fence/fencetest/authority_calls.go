package fencetest

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

// arguments: each method refuses what is malformed by its name, and writes nothing. What is malformed, the tests of
// fence.Claim.Validate and of package verdict say in full.
func arguments(t *testing.T, a fence.Authority) {
	ctx := t.Context()
	held, other := mustClaim(t, a, newClaim(newTile(), "a:1")), newTile()
	edited := func(edit func(*fence.Grant)) fence.Grant {
		g := held
		edit(&g)
		return g
	}
	tileless := edited(func(g *fence.Grant) { g.Tile = 0 })
	anonymous := edited(func(g *fence.Grant) { g.ID = fence.ClaimID{} })
	_, _, addedErr := a.Added(ctx, "", 0)
	for _, c := range []struct {
		what, field string
		err         error
	}{
		{"claim", "contact", none(t)(a.Claim(ctx, newClaim(other, "")))},
		{"claim many", "tile", none(t)(first(a.ClaimMany(ctx, []fence.Claim{{}})))},
		{"promote", "contact", none(t)(a.Promote(ctx, newPromotion(held.Tile, "", held.Epoch)))},
		{"lookup", "tile", none(t)(a.Lookup(ctx, 0))},
		{"release without tile", "tile", a.Release(ctx, tileless)},
		{"release without ID", "claim ID", a.Release(ctx, anonymous)},
		{"list", "limit", errOf(a.List(ctx, 0, 0))},
		{"added", "limit", addedErr},
		{"retire", "limit", errOf(a.Retire(ctx, 0, fence.MaxList+1))},
		{"retire the future", "released for", errOf(a.Retire(ctx, -1, 1))},
	} {
		requireArgument(t, c.err, c.field, c.what)
	}
	requireRow(t, a, held)
	requireNoRow(t, a, other)
	longest := newClaim(newTile(), strings.Repeat("\u00e9", fence.MaxContact/2)+"x")
	require.Len(t, longest.Contact, fence.MaxContact)
	requireRow(t, a, mustClaim(t, a, longest))
}

func first(results []fence.ClaimResult) (fence.Grant, error) { return results[0].Grant, results[0].Err }

// none is errOf for calls that must not grant anything.
func none(t *testing.T) func(fence.Grant, error) error {
	return func(g fence.Grant, err error) error {
		t.Helper()
		require.Zero(t, g)
		return err
	}
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

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

		_, err = a.List(ctx, 0, 1)
		require.True(t, notApplied(t, err, 0))
		_, _, err = a.Added(ctx, "", 1)
		require.True(t, notApplied(t, err, 0))
		_, err = a.Retire(ctx, 0, 1)
		notApplied(t, err, 0)
	}
}

// contextEndsMidway cancels calls after random delays, up to what a call takes, and checks that whatever
// came back is true and that the same call again settles it.
func contextEndsMidway(t *testing.T, a fence.Authority) {
	rng := seed.Rand(t)
	took := timeOf(t, a)
	const tries = 20 // each costs a back end with servers up to three connections
	var cut int
	for range tries {
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
	t.Logf("%d of %d releases were cut off", cut, tries)
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
