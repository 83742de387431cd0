package pgfence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
)

// A record whose transaction began before others, and is committed after they were listed, is not missed: neither when
// its number is below those of the records that were listed, nor within the pages of one pass.
func TestAddedLate(t *testing.T) {
	fresh := scenes(t)
	for _, limit := range []int{1, 2, 3, 100} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			s := fresh(t)
			_, bookmark, err := s.direct.Added(t.Context(), "", limit)
			require.NoError(t, err)
			late, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = late.Rollback(context.Background()) }()
			_, err = late.Exec(t.Context(), "INSERT INTO "+s.table+
				" (tile, epoch, contact, claim, minted_at) VALUES (1000, 1, 'x:1', gen_random_uuid(), now())")
			require.NoError(t, err)
			s.hold(t, 5)
			seen := map[fence.TileID]int{}
			next := func() (n int) {
				page, after, err := s.direct.Added(t.Context(), bookmark, limit)
				require.NoError(t, err)
				require.NotEmpty(t, after)
				for _, g := range page {
					seen[g.Tile]++
				}
				bookmark = after
				return len(page)
			}
			next() // the pass is under way, or over
			require.NoError(t, late.Commit(t.Context()))
			for range 2 { // what is left of this pass, and a whole one
				for next() == limit {
				}
			}
			require.Positive(t, seen[1000], "%v", seen)
			for tile := range fence.TileID(5) {
				require.Positive(t, seen[tile+1], "%v", seen)
			}
		})
	}
}

// The rows of before there was the column come in no pass: they are part of the list of all. A process of an earlier
// release makes records that do.
func TestAddedByOthers(t *testing.T) {
	s := newScene(t)
	s.exec(t, "INSERT INTO "+s.table+" (tile, epoch, contact, claim, minted_at, added) "+
		"VALUES (1, 1, 'x:1', gen_random_uuid(), now(), NULL)")
	_, bookmark, err := s.direct.Added(t.Context(), "", 10)
	require.NoError(t, err)
	s.exec(t, "INSERT INTO "+s.table+" (tile, epoch, contact, claim, minted_at) "+
		"VALUES (2, 1, 'x:1', gen_random_uuid(), now())")
	page, _, err := s.direct.Added(t.Context(), bookmark, 10)
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.EqualValues(t, 2, page[0].Tile)
}

// Records are in the order of the numbers of their transactions, also where these get a digit more.
func TestAddedInOrder(t *testing.T) {
	s := newScene(t)
	s.exec(t, "INSERT INTO "+s.table+" (tile, epoch, contact, claim, minted_at, added) "+
		"SELECT n, 1, 'x:1', gen_random_uuid(), now(), n::text::xid8 FROM generate_series(5, 120) n")
	want := make([]fence.TileID, 0, 116)
	for tile := fence.TileID(5); tile <= 120; tile++ {
		want = append(want, tile)
	}
	for _, limit := range []int{1, 7, 1000} {
		var tiles []fence.TileID
		for bookmark, n := fence.Bookmark("5"), limit; n == limit; {
			page, next, err := s.direct.Added(t.Context(), bookmark, limit)
			require.NoError(t, err)
			for _, g := range page {
				tiles = append(tiles, g.Tile)
			}
			bookmark, n = next, len(page)
		}
		require.Equal(t, want, tiles, "limit %d", limit)
	}
}

// BenchmarkListing compares what a process asks every ten seconds to know all tiles, with a million of them: all
// records in pages, as it was, and what share.Recorded asks for: the records that were added, here a hundred, and one
// page.
func BenchmarkListing(b *testing.B) {
	const tiles, added = 1_000_000, 100
	g := newGroundOf(b, tiles, nil)
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range fence.Records(b.Context(), g.a) {
				require.NoError(b, err)
				n++
			}
			require.GreaterOrEqual(b, n, tiles)
		}
	})
	b.Run("added", func(b *testing.B) {
		_, bookmark, err := g.a.Added(b.Context(), "", 1)
		require.NoError(b, err)
		for n := int64(tiles); b.Loop(); n += added {
			b.StopTimer()
			_, err := g.pool.Exec(b.Context(), "INSERT INTO "+pgfence.DefaultTable+
				` (tile, epoch, contact, claim, minted_at)
				SELECT n, 1, 'a:1', gen_random_uuid(), now() FROM generate_series($1::bigint, $2) n`, n+1, n+added)
			require.NoError(b, err)
			b.StartTimer()
			page, next, err := g.a.Added(b.Context(), bookmark, fence.MaxList)
			require.NoError(b, err)
			require.GreaterOrEqual(b, len(page), added)
			bookmark = next
		}
	})
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			page, err := g.a.List(b.Context(), 500_000, fence.MaxList)
			require.NoError(b, err)
			require.Len(b, page, fence.MaxList)
		}
	})
}
