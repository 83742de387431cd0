package fencetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func claimFirst(t *testing.T, a fence.Authority) {
	c := newClaim(newTile(), "a:1")
	g := mustClaim(t, a, c)
	requireGrant(t, minted(c, 1), g)
	require.True(t, g.Held())
	requireRow(t, a, g)
	// Tiles do not share epochs.
	other := newClaim(newTile(), "a:1")
	requireGrant(t, minted(other, 1), mustClaim(t, a, other))
}

func claimHeld(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	late := newClaim(g.Tile, "b:1")
	late.Floor = 10 // knowing of a higher epoch gives no right to a tile that is held
	got, err := a.Claim(t.Context(), late)
	require.Zero(t, got)
	requireLost(t, a, err, g)
	// The holder itself, in another attempt, is nobody special.
	_, err = a.Claim(t.Context(), newClaim(g.Tile, "a:1"))
	requireLost(t, a, err, g)
}

// claimExpected: a claim from the wrong epoch changes nothing and tells the right one.
func claimExpected(t *testing.T, a fence.Authority) {
	tile := newTile()
	_, err := a.Claim(t.Context(), newPromotion(tile, "a:1", 1))
	require.ErrorIs(t, err, fence.ErrNeverOwned)
	requireNoRow(t, a, tile)

	first := newClaim(tile, "a:1")
	first.Floor = 6
	g := mustClaim(t, a, first)
	require.NoError(t, a.Release(t.Context(), g))
	for _, wrong := range []fence.Epoch{0, 6, 8} {
		c := newPromotion(tile, "b:1", wrong)
		c.Floor = 100 // makes up for nothing
		got, err := a.Claim(t.Context(), c)
		require.Zero(t, got)
		requireLost(t, a, err, released(g))
	}
	c := newPromotion(tile, "b:1", g.Epoch)
	requireGrant(t, minted(c, 8), mustClaim(t, a, c))
	requireRow(t, a, minted(c, 8))
	// Held, the right epoch is not enough.
	_, err = a.Claim(t.Context(), newPromotion(tile, "c:1", 8))
	requireLost(t, a, err, minted(c, 8))
}

// claimLate: a copy of a claim that arrives after others have had the tile finds it free, and leaves it.
func claimLate(t *testing.T, a fence.Authority) {
	first := newClaim(newTile(), "a:1")
	g := mustClaim(t, a, first)
	require.NoError(t, a.Release(t.Context(), g))
	again := newPromotion(g.Tile, "a:1", g.Epoch)
	g = mustClaim(t, a, again)
	g = mustPromote(t, a, newPromotion(g.Tile, "b:1", g.Epoch))
	require.NoError(t, a.Release(t.Context(), g))
	for _, late := range []fence.Claim{first, again} {
		_, err := a.Claim(t.Context(), late)
		requireLost(t, a, err, released(g))
	}
}

func claimRetry(t *testing.T, a fence.Authority) {
	c := newClaim(newTile(), "a:1")
	g := mustClaim(t, a, c)
	require.Equal(t, g, mustClaim(t, a, c))
	requireRow(t, a, g)
	// Superseded, the same retry learns by whom.
	successor := mustPromote(t, a, newPromotion(c.Tile, "b:1", g.Epoch))
	_, err := a.Claim(t.Context(), c)
	requireLost(t, a, err, successor)
	// The same for a claim that took a released tile.
	require.NoError(t, a.Release(t.Context(), successor))
	again := newPromotion(c.Tile, "c:1", successor.Epoch)
	again.Floor = 2
	g = mustClaim(t, a, again)
	requireGrant(t, minted(again, 3), g)
	require.Equal(t, g, mustClaim(t, a, again))
	requireRow(t, a, g)
}

func claimSpent(t *testing.T, a fence.Authority) {
	c := newClaim(newTile(), "a:1")
	g := mustClaim(t, a, c)
	require.NoError(t, a.Release(t.Context(), g))
	// A copy of the claim that was delayed until now must not take the tile for an owner who left.
	_, err := a.Claim(t.Context(), c)
	requireLost(t, a, err, released(g))
	// A promotion whose grant was given up is spent in the same way.
	p := newPromotion(c.Tile, "b:1", g.Epoch)
	won := mustPromote(t, a, p)
	require.NoError(t, a.Release(t.Context(), won))
	_, err = a.Promote(t.Context(), p)
	requireLost(t, a, err, released(won))
}

func claimAbove(t *testing.T, a fence.Authority) {
	for _, test := range []struct{ row, above, want fence.Epoch }{
		{0, 0, 1}, {0, 1, 2}, {0, 41, 42}, {5, 0, 6}, {5, 4, 6}, {5, 5, 6}, {5, 6, 7}, {5, 1 << 40, 1<<40 + 1},
	} {
		tile := newTile()
		if test.row > 0 {
			first := newClaim(tile, "a:1")
			first.Floor = test.row - 1
			g := mustClaim(t, a, first)
			require.Equal(t, test.row, g.Epoch)
			require.NoError(t, a.Release(t.Context(), g))
		}
		c := newPromotion(tile, "b:1", test.row)
		c.Floor = test.above
		requireGrant(t, minted(c, test.want), mustClaim(t, a, c), "%+v", test)
	}
}

func claimExhausted(t *testing.T, a fence.Authority) {
	c := newClaim(newTile(), "a:1")
	c.Floor = fence.MaxNumber - 1
	g := mustClaim(t, a, c)
	require.Equal(t, fence.Epoch(fence.MaxNumber), g.Epoch)
	require.Equal(t, g, mustClaim(t, a, c))
	require.NoError(t, a.Release(t.Context(), g))
	_, err := a.Claim(t.Context(), newClaim(c.Tile, "b:1"))
	require.True(t, notApplied(t, err, c.Tile))
	requireRow(t, a, released(g))
}

func promoteExpected(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	for _, wrong := range []fence.Epoch{0, 2, 100} {
		p := newPromotion(g.Tile, "b:1", wrong)
		got, err := a.Promote(t.Context(), p)
		require.Zero(t, got)
		requireLost(t, a, err, g)
	}
	p := newPromotion(g.Tile, "b:1", g.Epoch)
	won := mustPromote(t, a, p)
	requireGrant(t, minted(p, 2), won)
	requireRow(t, a, won)
	// The next candidate with the same knowledge comes too late.
	_, err := a.Promote(t.Context(), newPromotion(g.Tile, "c:1", g.Epoch))
	requireLost(t, a, err, won)
	// An owner may take over from itself, to get a new epoch.
	self := newPromotion(g.Tile, "b:1", won.Epoch)
	requireGrant(t, minted(self, 3), mustPromote(t, a, self))
}

func promoteReleased(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	require.NoError(t, a.Release(t.Context(), g))
	_, err := a.Promote(t.Context(), newPromotion(g.Tile, "b:1", g.Epoch+1))
	requireLost(t, a, err, released(g))
	p := newPromotion(g.Tile, "b:1", g.Epoch)
	requireGrant(t, minted(p, 2), mustPromote(t, a, p))
	requireRow(t, a, minted(p, 2))
}

func promoteRetry(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	for _, above := range []fence.Epoch{0, 10, 10} {
		p := newPromotion(g.Tile, "b:1", g.Epoch)
		p.Floor = above
		g = mustPromote(t, a, p)
		requireGrant(t, minted(p, max(p.Expected, p.Floor)+1), g)
		require.Equal(t, g, mustPromote(t, a, p))
		requireRow(t, a, g)
	}
}

func promoteSuperseded(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	p := newPromotion(g.Tile, "b:1", g.Epoch)
	won := mustPromote(t, a, p)
	successor := mustPromote(t, a, newPromotion(g.Tile, "c:1", won.Epoch))
	_, err := a.Promote(t.Context(), p)
	requireLost(t, a, err, successor)
	// Not even when the tile is free again: the epoch it expected is gone for good.
	require.NoError(t, a.Release(t.Context(), successor))
	_, err = a.Promote(t.Context(), p)
	requireLost(t, a, err, released(successor))
}

func promoteAbove(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	for _, test := range []struct{ above, want fence.Epoch }{{0, 2}, {1, 3}, {3, 4}, {4, 5}, {9, 10}, {5, 11}} {
		p := newPromotion(g.Tile, "a:1", g.Epoch)
		p.Floor = test.above
		g = mustPromote(t, a, p)
		requireGrant(t, minted(p, test.want), g, "%+v", test)
	}
	// Knowing of a higher epoch does not make up for the wrong one.
	p := newPromotion(g.Tile, "b:1", g.Epoch-1)
	p.Floor = 1000
	_, err := a.Promote(t.Context(), p)
	requireLost(t, a, err, g)
}

func promoteNeverOwned(t *testing.T, a fence.Authority) {
	tile := newTile()
	for _, expected := range []fence.Epoch{0, 1, 7} {
		p := newPromotion(tile, "a:1", expected)
		p.Floor = 9
		g, err := a.Promote(t.Context(), p)
		require.ErrorIs(t, err, fence.ErrNeverOwned)
		require.Zero(t, g)
		requireNoRow(t, a, tile)
	}
}

func claimIDReused(t *testing.T, a fence.Authority) {
	c := newClaim(newTile(), "a:1")
	g := mustClaim(t, a, c)
	elsewhere, higher := c, c
	elsewhere.Contact = "b:1"
	higher.Floor = g.Epoch
	for _, other := range []fence.Claim{elsewhere, higher} {
		_, err := a.Claim(t.Context(), other)
		requireArgument(t, err, "claim ID")
		requireRow(t, a, g)
	}
	// A promotion needs an ID of its own; with the claim's it would look like a retry of the claim.
	p := c
	p.Expected = g.Epoch
	_, err := a.Promote(t.Context(), p)
	requireArgument(t, err, "claim ID")
	requireRow(t, a, g)
}

func releaseKeepsEpoch(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	for range 3 {
		require.NoError(t, a.Release(t.Context(), g))
		requireRow(t, a, released(g))
		c := newPromotion(g.Tile, "b:1", g.Epoch)
		next := mustClaim(t, a, c)
		requireGrant(t, minted(c, g.Epoch+1), next)
		requireRow(t, a, next)
		g = next
	}
}

func releaseStale(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	successor := mustPromote(t, a, newPromotion(g.Tile, "b:1", g.Epoch))
	requireLost(t, a, a.Release(t.Context(), g), successor)
	// Epoch and ID both count.
	wrong := successor
	wrong.ID = g.ID
	requireLost(t, a, a.Release(t.Context(), wrong), successor)
	wrong = successor
	wrong.Epoch++
	requireLost(t, a, a.Release(t.Context(), wrong), successor)
	// A stale grant stays stale when the tile is free.
	require.NoError(t, a.Release(t.Context(), successor))
	requireLost(t, a, a.Release(t.Context(), g), released(successor))
}

func releaseTwice(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	withoutContact := released(g) // epoch and ID name a grant
	require.NoError(t, a.Release(t.Context(), withoutContact))
	require.NoError(t, a.Release(t.Context(), g))
	requireRow(t, a, released(g))
	next := mustClaim(t, a, newPromotion(g.Tile, "b:1", g.Epoch))
	requireLost(t, a, a.Release(t.Context(), g), next)
}

func releaseNeverOwned(t *testing.T, a fence.Authority) {
	g := minted(newClaim(newTile(), "a:1"), 3)
	require.ErrorIs(t, a.Release(t.Context(), g), fence.ErrNeverOwned)
	requireNoRow(t, a, g.Tile)
}

func lookupNeverOwned(t *testing.T, a fence.Authority) { requireNoRow(t, a, newTile()) }

// lookupEveryBit wants tiles, contacts and IDs back exactly as they went in, even where a database has
// no type that is a perfect match.
func lookupEveryBit(t *testing.T, a fence.Authority) {
	tiles := []fence.TileID{newTile() | 1<<63, ^newTile(), newTile()}
	contacts := []string{"[2001:db8::1]:7777", "' OR 1=1; -- %s {table} $1 \\ \"", "\u00e9\u2603\U0001f30d"}
	for i, tile := range tiles {
		c := newClaim(tile, contacts[i])
		c.ID[0], c.ID[15] = 0, 0xff
		g := mustClaim(t, a, c)
		requireGrant(t, minted(c, 1), g)
		requireRow(t, a, g)
		_, err := a.Claim(t.Context(), newClaim(tile, "b:1"))
		requireLost(t, a, err, g)
	}
}
