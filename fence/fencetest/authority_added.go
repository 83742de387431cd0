package fencetest

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

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
