package fencetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/fence"
)

// authorityModel makes random calls, one after the other, and compares every answer with a model that
// is as small as the contract allows and shares no code with any back end.
func authorityModel(t *testing.T, a fence.Authority) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{rows: map[fence.TileID]fence.Grant{},
			tiles: []fence.TileID{newTile(), newTile() | 1<<63, newTile()}, floor: emptied(t, a)}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(rt *rapid.T) {
				c := m.draw(rt)
				want := m.claim(c)
				g, err := a.Claim(t.Context(), c)
				want.require(rt, "claim", c, g, err)
			},
			"claim many": func(rt *rapid.T) {
				claims := m.drawSet(rt)
				var want []expectation
				for _, c := range claims {
					want = append(want, m.claim(c))
				}
				results := a.ClaimMany(t.Context(), claims)
				require.Len(rt, results, len(claims))
				for i, got := range results {
					want[i].require(rt, "claim many", claims[i], got.Grant, got.Err)
				}
			},
			"promote": func(rt *rapid.T) {
				c := m.draw(rt)
				want := m.promote(c)
				g, err := a.Promote(t.Context(), c)
				want.require(rt, "promote", c, g, err)
			},
			"release": func(rt *rapid.T) {
				g := m.drawGrant(rt)
				want := m.release(g)
				want.require(rt, "release", g, fence.Grant{}, a.Release(t.Context(), g))
			},
			"retire": func(rt *rapid.T) {
				want := m.retire()
				n, err := a.Retire(t.Context(), 0, fence.MaxList)
				require.NoError(rt, err)
				require.Equal(rt, want, n, "retired")
			},
			"lookup": func(rt *rapid.T) {
				tile := rapid.SampledFrom(m.tiles).Draw(rt, "tile")
				want := expectation{grant: m.rows[tile]}
				if want.grant.Epoch == 0 {
					want = expectation{err: fence.ErrNeverOwned}
				}
				g, err := a.Lookup(t.Context(), tile)
				want.require(rt, "lookup", tile, g, err)
			},
			"": func(rt *rapid.T) {
				grants, err := a.List(t.Context(), 0, fence.MaxList)
				require.NoError(rt, err)
				tiles := slices.Sorted(maps.Keys(m.rows))
				require.Len(rt, grants, len(tiles))
				for i, g := range grants {
					requireGrant(rt, m.rows[tiles[i]], g)
				}
			},
		})
	})
}

// emptied removes all records, and returns the floor that is left.
func emptied(t *testing.T, a fence.Authority) fence.Epoch {
	t.Helper()
	grants, err := a.List(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	for _, g := range grants {
		if g.Held() {
			require.NoError(t, a.Release(t.Context(), g))
		}
	}
	retired, err := a.Retire(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	require.Len(t, grants, retired)
	probe := mustClaim(t, a, newClaim(newTile(), "probe:1"))
	require.NoError(t, a.Release(t.Context(), probe))
	_, err = a.Retire(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	return probe.Epoch
}

// model is an authority as a table of rows, with the calls made so far to draw retries from.
type model struct {
	rows   map[fence.TileID]fence.Grant
	floor  fence.Epoch // the highest epoch of any row retired
	tiles  []fence.TileID
	past   []fence.Claim
	grants []fence.Grant
}

// expectation is an answer: a grant, or the class of an error and, for a lost claim, its holder.
type expectation struct {
	grant fence.Grant
	err   error
}

func (e expectation) require(rt require.TestingT, op string, argument any, g fence.Grant, err error) {
	call := fmt.Sprintf("%s(%+v)", op, argument)
	if e.err == nil {
		require.NoError(rt, err, call)
		if e.grant.Epoch == 0 { // a release has none
			require.Zero(rt, g, call)
			return
		}
		requireGrant(rt, e.grant, g, call)
		return
	}
	require.ErrorIs(rt, err, e.err, call)
	require.Zero(rt, g, call)
	if errors.Is(e.err, fence.ErrLost) {
		var lost *fence.LostError
		require.ErrorAs(rt, err, &lost, call)
		requireGrant(rt, e.grant, lost.Current, call)
	}
}

// draw gives a new attempt, a retry, or an old ClaimID with other arguments, with epochs around the
// row's.
func (m *model) draw(rt *rapid.T) fence.Claim {
	if len(m.past) > 0 && rapid.IntRange(0, 2).Draw(rt, "old") == 0 {
		c := rapid.SampledFrom(m.past).Draw(rt, "past")
		switch rapid.IntRange(0, 5).Draw(rt, "edit") {
		case 0:
			c.Contact += "x"
		case 1:
			c.Floor++
		case 2:
			c.Floor = m.rows[c.Tile].Epoch
		case 3:
			c.Expected = m.rows[c.Tile].Epoch
		}
		return c
	}
	tile := rapid.SampledFrom(m.tiles).Draw(rt, "tile")
	near := func(label string) fence.Epoch {
		if rapid.Bool().Draw(rt, label+" unset") {
			return 0
		}
		return m.rows[tile].Epoch + fence.Epoch(rapid.IntRange(1, 4).Draw(rt, label)) - min(2, m.rows[tile].Epoch)
	}
	c := newClaim(tile, rapid.SampledFrom([]string{"a:1", "b:1"}).Draw(rt, "contact"))
	c.Floor = near("above")
	c.Expected = m.rows[tile].Epoch
	if rapid.IntRange(0, 3).Draw(rt, "wrong") == 0 {
		c.Expected = near("expected")
	}
	m.past = append(m.past, c)
	return c
}

// drawSet gives claims of different tiles, since of two for one tile either may come first, and now and then one that
// is malformed, which the others must not feel.
func (m *model) drawSet(rt *rapid.T) (claims []fence.Claim) {
	for range rapid.IntRange(0, 4).Draw(rt, "claims") {
		c := m.draw(rt)
		if slices.ContainsFunc(claims, func(o fence.Claim) bool { return o.Tile == c.Tile }) {
			c = newClaim(newTile(), "")
		}
		claims = append(claims, c)
	}
	return claims
}

// drawGrant gives the current grant, an old one, or one that never was.
func (m *model) drawGrant(rt *rapid.T) fence.Grant {
	tile := rapid.SampledFrom(m.tiles).Draw(rt, "tile")
	g := m.rows[tile]
	if len(m.grants) > 0 && rapid.Bool().Draw(rt, "old") {
		g = rapid.SampledFrom(m.grants).Draw(rt, "grant")
	}
	if g.Epoch == 0 || rapid.IntRange(0, 9).Draw(rt, "never") == 0 {
		g = minted(newClaim(tile, "c:1"), max(g.Epoch, 1))
	}
	return g
}

func (m *model) mint(c fence.Claim, epoch fence.Epoch) expectation {
	g := minted(c, epoch)
	g.Mints = m.rows[c.Tile].Mints + 1
	m.rows[c.Tile] = g
	m.grants = append(m.grants, g)
	return expectation{grant: g}
}

func (m *model) lost(tile fence.TileID) expectation {
	return expectation{grant: m.rows[tile], err: fence.ErrLost}
}

func (m *model) claim(c fence.Claim) expectation {
	row, owned := m.rows[c.Tile]
	switch {
	case c.Contact == "":
		return expectation{err: fence.ErrInvalidArgument}
	case !owned && c.Expected > 0:
		return expectation{err: fence.ErrNeverOwned}
	case !owned:
		return m.mint(c, max(m.floor, c.Floor)+1)
	case row.ID == c.ID:
		return m.again(c, row.Epoch == max(c.Expected, c.Floor)+1 || c.Expected == 0 && row.Epoch > c.Floor)
	case row.Held() || row.Epoch != c.Expected:
		return m.lost(c.Tile)
	}
	return m.mint(c, max(c.Expected, c.Floor)+1)
}

func (m *model) promote(c fence.Claim) expectation {
	row, owned := m.rows[c.Tile]
	switch {
	case !owned:
		return expectation{err: fence.ErrNeverOwned}
	case row.ID == c.ID:
		return m.again(c, row.Epoch == max(c.Expected, c.Floor)+1)
	case row.Epoch != c.Expected:
		return m.lost(c.Tile)
	}
	return m.mint(c, max(c.Expected, c.Floor)+1)
}

// again is a call with the ClaimID of the current grant.
func (m *model) again(c fence.Claim, same bool) expectation {
	row := m.rows[c.Tile]
	if !same || (row.Held() && row.Contact != c.Contact) {
		return expectation{err: fence.ErrInvalidArgument}
	}
	if !row.Held() {
		return m.lost(c.Tile)
	}
	return expectation{grant: row}
}

func (m *model) release(g fence.Grant) expectation {
	row, owned := m.rows[g.Tile]
	if !owned {
		return expectation{err: fence.ErrNeverOwned}
	}
	if row.Epoch != g.Epoch || row.ID != g.ID {
		return m.lost(g.Tile)
	}
	m.rows[g.Tile] = released(row)
	return expectation{}
}

func (m *model) retire() (retired int) {
	for tile, row := range m.rows {
		if !row.Held() {
			m.floor = max(m.floor, row.Epoch)
			delete(m.rows, tile)
			retired++
		}
	}
	return retired
}
