package fencetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

// mintedWhen: a grant says when its epoch was minted and how many were before it; a release is no mint.
func mintedWhen(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	require.WithinDuration(t, time.Now(), g.Minted, time.Minute)
	require.EqualValues(t, 1, g.Mints)
	requireRow(t, a, g)
	require.Equal(t, g, mustClaim(t, a, fence.Claim{Tile: g.Tile, Contact: g.Contact, ID: g.ID}), "a retry")

	p := newPromotion(g.Tile, "b:1", g.Epoch)
	p.Floor = 100 // skips epochs, which is one mint
	next := mustPromote(t, a, p)
	require.False(t, next.Minted.Before(g.Minted))
	require.EqualValues(t, 2, next.Mints)
	requireRow(t, a, next)

	require.NoError(t, a.Release(t.Context(), next))
	requireRow(t, a, released(next))
	last := mustClaim(t, a, newPromotion(g.Tile, "c:1", next.Epoch))
	require.False(t, last.Minted.Before(next.Minted))
	require.EqualValues(t, 3, last.Mints)
	requireRow(t, a, last)
}

// claimManyTwice: the same set again has the same grants, and hundreds of others lose to them. A back end may need
// several transactions for so many.
func claimManyTwice(t *testing.T, a fence.Authority) {
	const tiles = 600
	var claims, others []fence.Claim
	for range tiles {
		c := newClaim(newTile(), "a:1")
		claims, others = append(claims, c), append(others, newClaim(c.Tile, "b:1"))
	}
	won := a.ClaimMany(t.Context(), claims)
	for i, r := range won {
		require.NoError(t, r.Err)
		requireGrant(t, minted(claims[i], 1), r.Grant)
	}
	require.Equal(t, won, a.ClaimMany(t.Context(), claims))
	for i, r := range a.ClaimMany(t.Context(), others) {
		var lost *fence.LostError
		require.ErrorAs(t, r.Err, &lost)
		require.Equal(t, won[i].Grant, lost.Current)
	}
}

// claimManyDuplicates: of several claims of one tile in a set, one wins, and the others learn of it.
func claimManyDuplicates(t *testing.T, a fence.Authority) {
	for range rounds {
		claims := contenders(newTile(), 0)
		claims = append(claims, claims[0], claims[1]) // and two of them are retries
		var answers []answer
		var winner fence.Grant
		for i, r := range a.ClaimMany(t.Context(), claims) {
			answers = append(answers, answer{claims[i], r.Grant, r.Err})
			if r.Err == nil {
				require.True(t, winner == fence.Grant{} || winner == r.Grant, "two winners")
				winner = r.Grant
				requireGrant(t, minted(claims[i], 1), winner)
			}
		}
		for _, got := range answers {
			if got.claim.ID != winner.ID {
				requireLost(t, a, got.err, winner)
			}
		}
	}
}

// claimManyDone: under a context that is done every claim fails, and says the truth about its outcome.
func claimManyDone(t *testing.T, a fence.Authority) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	claims := []fence.Claim{newClaim(newTile(), "a:1"), newClaim(newTile(), "a:1"), newClaim(0, "a:1")}
	results := a.ClaimMany(done, claims)
	require.Len(t, results, len(claims))
	for i, c := range claims[:2] {
		if notApplied(t, results[i].Err, c.Tile) {
			requireNoRow(t, a, c.Tile)
		}
	}
	requireArgument(t, results[2].Err, "tile")
	for i, r := range a.ClaimMany(t.Context(), claims[:2]) {
		require.NoError(t, r.Err)
		requireGrant(t, minted(claims[i], 1), r.Grant)
	}
}

// raceClaimMany: several processes claim the same tiles in sets that overlap, in orders of their own. Each
// tile goes to one of them, and all name the same one.
func raceClaimMany(t *testing.T, a fence.Authority) {
	rng := seed.Rand(t)
	tiles := make([]fence.TileID, 60)
	for i := range tiles {
		tiles[i] = newTile()
	}
	sets := make([][]fence.Claim, 8)
	for i := range sets {
		for _, n := range rng.Perm(len(tiles))[:40] {
			sets[i] = append(sets[i], newClaim(tiles[n], fmt.Sprintf("host-%d:1", i)))
		}
	}
	results := make([][]fence.ClaimResult, len(sets))
	each(len(sets), func(i int) { results[i] = a.ClaimMany(t.Context(), sets[i]) })
	for i, set := range sets {
		for n, c := range set {
			row, err := a.Lookup(t.Context(), c.Tile)
			require.NoError(t, err)
			require.EqualValues(t, 1, row.Epoch)
			if r := results[i][n]; r.Err == nil {
				require.Equal(t, row, r.Grant)
			} else {
				requireLost(t, a, r.Err, row)
			}
		}
	}
}

// list wants every record once, in the order of tiles, in pages of any size.
func list(t *testing.T, a fence.Authority) {
	none, err := a.List(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Empty(t, none)
	var want []fence.Grant
	for i := range 23 {
		tile := newTile()
		if i%3 == 0 {
			tile |= 1 << 63 // where databases have signed numbers
		}
		g := mustClaim(t, a, newClaim(tile, "a:1"))
		if i%2 == 0 {
			require.NoError(t, a.Release(t.Context(), g))
			g = released(g)
		}
		want = append(want, g)
	}
	for _, edge := range []fence.TileID{1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		want = append(want, mustClaim(t, a, newClaim(edge, "a:1")))
	}
	slices.SortFunc(want, func(a, b fence.Grant) int { return cmp.Compare(a.Tile, b.Tile) })
	for _, limit := range []int{1, 2, 5, len(want) - 1, len(want), len(want) + 1, fence.MaxList} {
		var got []fence.Grant
		for after := fence.TileID(0); ; after = got[len(got)-1].Tile {
			page, err := a.List(t.Context(), after, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), limit)
			got = append(got, page...)
			if len(page) < limit {
				break
			}
		}
		require.Equal(t, want, got, "limit %d", limit)
	}
	for _, after := range want {
		page, err := a.List(t.Context(), after.Tile, fence.MaxList)
		require.NoError(t, err)
		i := slices.Index(want, after)
		require.Equal(t, append([]fence.Grant{}, want[i+1:]...), append([]fence.Grant{}, page...))
	}
}

// now is the bookmark of now.
func now(t *testing.T, a fence.Authority) fence.Bookmark {
	t.Helper()
	none, bookmark, err := a.Added(t.Context(), "", 1)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NotEmpty(t, bookmark)
	return bookmark
}

// addedSince wants every record made since a bookmark, in pages.
func addedSince(
	t *testing.T, a fence.Authority, since fence.Bookmark, limit int,
) (tiles []fence.TileID, next fence.Bookmark) {
	t.Helper()
	for {
		page, next, err := a.Added(t.Context(), since, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		require.NotEmpty(t, next)
		for _, g := range page {
			tiles = append(tiles, g.Tile)
		}
		if since = next; len(page) < limit {
			slices.Sort(tiles)
			return slices.Compact(tiles), next
		}
	}
}

// added wants records that are new, and no others, in pages of any size, also of tiles whose records were retired.
func added(t *testing.T, a fence.Authority) {
	old := mustClaim(t, a, newClaim(newTile(), "a:1"))
	bookmark := now(t, a)
	var claims []fence.Claim
	var want []fence.TileID
	for i := range 23 {
		tile := newTile()
		if i%3 == 0 {
			tile |= 1 << 63 // where databases have signed numbers
		}
		claims, want = append(claims, newClaim(tile, "a:1")), append(want, tile)
	}
	for _, r := range a.ClaimMany(t.Context(), claims[:11]) {
		require.NoError(t, r.Err)
	}
	for _, c := range claims[11:] {
		mustClaim(t, a, c)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 2, 5, 22, 23, 24, fence.MaxList} {
		got, _ := addedSince(t, a, bookmark, limit)
		got = slices.DeleteFunc(got, func(tile fence.TileID) bool { return tile == old.Tile }) // it may come again
		require.Equal(t, want, got, "limit %d", limit)
	}
	_, bookmark = addedSince(t, a, bookmark, 5)
	// What changes is not added.
	old = mustPromote(t, a, newPromotion(old.Tile, "b:1", old.Epoch))
	require.NoError(t, a.Release(t.Context(), old))
	_, bookmark = addedSince(t, a, bookmark, 100)

	retired, err := a.Retire(t.Context(), 0, 100)
	require.NoError(t, err)
	require.Equal(t, 1, retired)
	mustClaim(t, a, newClaim(old.Tile, "c:1"))
	again, _ := addedSince(t, a, bookmark, 100)
	require.Contains(t, again, old.Tile)
	for _, bad := range []fence.Bookmark{"x", " ", "1 2", "-1", "1 2 3 4", "99999999999999999999999"} {
		_, _, err := a.Added(t.Context(), bad, 1)
		requireArgument(t, err, "bookmark")
	}
	none, begin, err := a.Added(t.Context(), "9007199254740991", 1)
	require.NoError(t, err, "an authority that was restored to an older state")
	require.Empty(t, none)
	require.Empty(t, begin)
}

// raceAdded: while many make records, each in a transaction of its own, a reader that goes on from bookmark to bookmark
// misses none.
func raceAdded(t *testing.T, a fence.Authority) {
	const writers, rounds = 8, 20
	rng := seed.Rand(t)
	limits := make([]int, 1000)
	for i := range limits {
		limits[i] = rng.IntN(7) + 1
	}
	bookmark := now(t, a)
	var made sync.WaitGroup
	done := make(chan struct{})
	claims := make([][]fence.Claim, writers)
	for w := range claims {
		for range rounds {
			claims[w] = append(claims[w], newClaim(newTile(), "a:1"))
		}
		made.Go(func() {
			for i, c := range claims[w] {
				if i%3 == 0 {
					assert.NoError(t, a.ClaimMany(t.Context(), []fence.Claim{c})[0].Err)
					continue
				}
				_, err := a.Claim(t.Context(), c)
				assert.NoError(t, err)
			}
		})
	}
	go func() {
		made.Wait()
		close(done)
	}()
	seen := map[fence.TileID]bool{}
	for i, ended := 0, false; !ended; i++ {
		select {
		case <-done:
			ended = true // and once more
		default:
		}
		var tiles []fence.TileID
		tiles, bookmark = addedSince(t, a, bookmark, limits[i%len(limits)])
		for _, tile := range tiles {
			seen[tile] = true
		}
	}
	for _, w := range claims {
		for _, c := range w {
			require.True(t, seen[c.Tile], "tile %s was missed", c.Tile)
		}
	}
}
