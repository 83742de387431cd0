package fencetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// claimExhausted: the highest epoch can be granted, and none after it.
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
