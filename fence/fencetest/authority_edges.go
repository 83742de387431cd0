package fencetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// claimFloor: a claim mints above the highest Floor, and is refused one that no authority has minted, which would use
// up the tile's epochs.
func claimFloor(t *testing.T, a fence.Authority) {
	c := newClaim(newTile(), "a:1")
	c.Floor = fence.MaxNumber - 1
	_, err := a.Claim(t.Context(), c)
	requireArgument(t, err, "floor")
	requireNoRow(t, a, c.Tile)

	c.Floor = fence.MaxRetired
	g := mustClaim(t, a, c)
	require.Equal(t, fence.MaxRetired+1, g.Epoch)
	p := newPromotion(c.Tile, "b:1", g.Epoch)
	p.Floor = g.Epoch + 1<<20 + 1
	_, err = a.Promote(t.Context(), p)
	requireArgument(t, err, "floor")
	requireArgument(t, a.ClaimMany(t.Context(), []fence.Claim{p})[0].Err, "floor")
	requireRow(t, a, g)
	p.Floor--
	require.Equal(t, p.Floor+1, mustPromote(t, a, p).Epoch)
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
