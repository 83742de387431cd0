package fencetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

func mustRetire(t *testing.T, a fence.Authority, want int) {
	t.Helper()
	n, err := a.Retire(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	require.Equal(t, want, n)
}

// freed is a released record of a new tile at an epoch.
func freed(t *testing.T, a fence.Authority, epoch fence.Epoch) fence.Grant {
	t.Helper()
	c := newClaim(newTile(), "a:1")
	c.Floor = epoch - 1
	g := mustClaim(t, a, c)
	require.Equal(t, epoch, g.Epoch)
	require.NoError(t, a.Release(t.Context(), g))
	return released(g)
}

// retireWhich: only what was released, long enough ago, and has an epoch that others can start above.
func retireWhich(t *testing.T, a fence.Authority) {
	g := freed(t, a, 3)
	n, err := a.Retire(t.Context(), time.Hour, fence.MaxList)
	require.NoError(t, err)
	require.Zero(t, n, "released just now")
	requireRow(t, a, g)
	// A tile that came back is not retired for having been released once.
	back := freed(t, a, 3)
	back = mustPromote(t, a, newPromotion(back.Tile, "b:1", back.Epoch))
	mustRetire(t, a, 1)
	requireRow(t, a, back)

	wild := freed(t, a, fence.MaxRetired+1)
	mustRetire(t, a, 0)
	requireRow(t, a, wild)
	highest := freed(t, a, fence.MaxRetired)
	mustRetire(t, a, 1)
	requireNoRow(t, a, highest.Tile)
	c := newClaim(newTile(), "a:1")
	requireGrant(t, minted(c, fence.MaxRetired+1), mustClaim(t, a, c))
}

// retireReused: a ClaimID that is used again with another Floor takes a tile that was retired. That moves no other
// tile's first epoch, which retired records alone decide.
func retireReused(t *testing.T, a fence.Authority) {
	c := newClaim(newTile(), "a:1")
	require.NoError(t, a.Release(t.Context(), mustClaim(t, a, c)))
	mustRetire(t, a, 1)
	higher := c
	higher.Floor = 5
	g := mustClaim(t, a, higher)
	requireGrant(t, minted(higher, 6), g)
	requireGrant(t, g, mustClaim(t, a, c))
	requireGrant(t, g, a.ClaimMany(t.Context(), []fence.Claim{c})[0].Grant)
	other := newClaim(newTile(), "a:1")
	requireGrant(t, minted(other, 2), mustClaim(t, a, other))
}

func retireLimit(t *testing.T, a fence.Authority) {
	for range 5 {
		freed(t, a, 1)
	}
	for _, want := range []int{2, 2, 1, 0} {
		n, err := a.Retire(t.Context(), 0, 2)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	rest, err := a.List(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	require.Empty(t, rest)
}

// raceRetire has owners come and go on a few tiles while their records are retired under them. Every epoch
// of a tile is granted once, and is above all that were granted before it was asked for.
func raceRetire(t *testing.T, a fence.Authority) {
	source := seed.Of(t)
	tiles := []fence.TileID{newTile(), newTile(), newTile()}
	records := make([]*callRecord, len(tiles))
	for i, tile := range tiles {
		records[i] = &callRecord{tile: tile}
	}
	var retired atomic.Int64
	stop := make(chan struct{})
	var collectors, owners sync.WaitGroup
	for range 2 {
		collectors.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n, err := a.Retire(t.Context(), 0, 10)
				// Several at once may get in each other's way, no more.
				if err != nil && !errors.Is(err, fence.ErrNotApplied) && !errors.Is(err, fence.ErrUnknownOutcome) {
					assert.NoError(t, err)
					return
				}
				retired.Add(int64(n))
			}
		})
	}
	for i := range racers / 2 {
		own := rand.New(rand.NewPCG(source, uint64(i)))
		owners.Go(func() {
			for range 30 {
				s := records[own.IntN(len(records))]
				if !s.comeAndGo(t, a, own, fmt.Sprintf("owner-%d:1", i)) {
					return
				}
			}
		})
	}
	owners.Wait()
	close(stop)
	collectors.Wait()
	wins := 0
	for _, s := range records {
		s.checkWins(t)
		wins += len(s.wins)
	}
	t.Logf("%d epochs minted, %d records retired", wins, retired.Load())
}

// comeAndGo claims the tile by what is known of it and releases it again; false for an answer that is never
// right.
func (s *callRecord) comeAndGo(t *testing.T, a fence.Authority, rng *rand.Rand, contact string) bool {
	row, err := a.Lookup(t.Context(), s.tile)
	if err != nil && !assert.ErrorIs(t, err, fence.ErrNeverOwned) {
		return false
	}
	c := newPromotion(s.tile, contact, row.Epoch)
	began := s.clock.Add(1)
	var g fence.Grant
	if rng.IntN(2) == 0 {
		g, err = a.Claim(t.Context(), c)
	} else { // together with another claim, which the back end may make in another way
		r := a.ClaimMany(t.Context(), []fence.Claim{c, newClaim(newTile(), contact)})
		g, err = r[0].Grant, r[0].Err
	}
	switch {
	case errors.Is(err, fence.ErrLost) || errors.Is(err, fence.ErrNeverOwned):
		return true
	case !assert.NoError(t, err) || !assert.Equal(t, minted(c, g.Epoch), bare(g)):
		return false
	}
	s.mu.Lock()
	s.wins = append(s.wins, win{g, began, s.clock.Add(1)})
	s.mu.Unlock()
	return assert.NoError(t, a.Release(t.Context(), g))
}
