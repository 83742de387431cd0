package fencetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

const (
	racers = 16
	rounds = 20
)

type answer struct {
	claim fence.Claim
	grant fence.Grant
	err   error
}

// each runs f for the numbers below n, all at once.
func each(n int, f func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// race makes all calls at once and returns their answers.
func race(claims []fence.Claim, call func(fence.Claim) (fence.Grant, error)) []answer {
	answers := make([]answer, len(claims))
	each(len(claims), func(i int) {
		g, err := call(claims[i])
		answers[i] = answer{claims[i], g, err}
	})
	return answers
}

func contenders(tile fence.TileID, expected fence.Epoch) []fence.Claim {
	claims := make([]fence.Claim, racers)
	for i := range claims {
		claims[i] = newPromotion(tile, fmt.Sprintf("racer-%d:1", i), expected)
	}
	return claims
}

// requireOneWinner wants one grant of epoch, and every loser refused with it.
func requireOneWinner(t *testing.T, a fence.Authority, answers []answer, epoch fence.Epoch) fence.Grant {
	t.Helper()
	won := slices.IndexFunc(answers, func(a answer) bool { return a.err == nil })
	require.GreaterOrEqual(t, won, 0, "nobody won: %v", answers)
	winner := answers[won].grant
	requireGrant(t, minted(answers[won].claim, epoch), winner)
	for i, got := range answers {
		if i != won {
			requireLost(t, a, got.err, winner)
		}
	}
	return winner
}

func raceClaim(t *testing.T, a fence.Authority) {
	for range rounds {
		claims := contenders(newTile(), 0)
		answers := race(claims, func(c fence.Claim) (fence.Grant, error) { return a.Claim(t.Context(), c) })
		requireOneWinner(t, a, answers, 1)
	}
}

func raceReclaim(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	for range rounds {
		require.NoError(t, a.Release(t.Context(), g))
		answers := race(contenders(g.Tile, g.Epoch), func(c fence.Claim) (fence.Grant, error) {
			return a.Claim(t.Context(), c)
		})
		g = requireOneWinner(t, a, answers, g.Epoch+1)
	}
}

func racePromote(t *testing.T, a fence.Authority) {
	g := mustClaim(t, a, newClaim(newTile(), "a:1"))
	for range rounds {
		answers := race(contenders(g.Tile, g.Epoch), func(c fence.Claim) (fence.Grant, error) {
			return a.Promote(t.Context(), c)
		})
		g = requireOneWinner(t, a, answers, g.Epoch+1)
	}
}

// raceSameClaim presents one attempt many times at once, as retries that overtake each other do.
func raceSameClaim(t *testing.T, a fence.Authority) {
	for range rounds {
		c := newClaim(newTile(), "a:1")
		same := slices.Repeat([]fence.Claim{c}, racers)
		for _, got := range race(same, func(c fence.Claim) (fence.Grant, error) { return a.Claim(t.Context(), c) }) {
			require.NoError(t, got.err)
			requireGrant(t, minted(c, 1), got.grant)
		}
		p := newPromotion(c.Tile, "b:1", 1)
		same = slices.Repeat([]fence.Claim{p}, racers)
		for _, got := range race(same, func(c fence.Claim) (fence.Grant, error) { return a.Promote(t.Context(), c) }) {
			require.NoError(t, got.err)
			requireGrant(t, minted(p, 2), got.grant)
		}
	}
}

// callRecord is the record of random calls on one tile from many goroutines. The clock orders what did not
// overlap: a call that began after another ended must see what that one did.
type callRecord struct {
	tile  fence.TileID
	clock atomic.Int64

	mu   sync.Mutex
	wins []win
	seen []shown
}

type win struct {
	grant        fence.Grant
	began, ended int64
}

// shown is a row shown to a caller that did not win it.
type shown struct {
	row          fence.Grant
	by           fence.ClaimID
	began, ended int64
}

func raceStorm(t *testing.T, a fence.Authority) {
	source := seed.Of(t)
	s := &callRecord{tile: newTile()}
	var wg sync.WaitGroup
	for i := range racers / 2 {
		own := rand.New(rand.NewPCG(source, uint64(i)))
		wg.Go(func() { s.player(t, a, own, fmt.Sprintf("player-%d:1", i)) })
	}
	wg.Wait()
	if !t.Failed() {
		s.check(t, a)
	}
}

// player makes random calls, knowing only what its own calls have taught it.
func (s *callRecord) player(t *testing.T, a fence.Authority, rng *rand.Rand, contact string) {
	known := fence.Grant{Tile: s.tile} // the latest row it was shown
	for range 60 {
		c := newPromotion(s.tile, contact, known.Epoch)
		if rng.IntN(4) == 0 {
			c.Floor = known.Epoch + fence.Epoch(rng.IntN(3))
		}
		began := s.clock.Add(1)
		var err error
		var g fence.Grant
		switch pick := rng.IntN(10); {
		case pick < 3:
			if g, err = a.Claim(t.Context(), c); err == nil &&
				!assert.Equal(t, minted(c, max(c.Expected, c.Floor)+1), bare(g)) {
				return
			}
		case pick < 6:
			if g, err = a.Promote(t.Context(), c); err == nil &&
				!assert.Equal(t, minted(c, max(c.Expected, c.Floor)+1), bare(g)) {
				return
			}
		case pick < 8 && known.Epoch > 0:
			// The row others hold is a grant too: a process that knows it may release it.
			g, err = released(known), a.Release(t.Context(), known)
		default:
			g, err = a.Lookup(t.Context(), s.tile)
		}
		if !s.record(t, c, began, g, err, &known) {
			return
		}
	}
}

// record keeps a call's answer and teaches the player from it; false for an answer that is never right.
func (s *callRecord) record(
	t *testing.T, c fence.Claim, began int64, g fence.Grant, err error, known *fence.Grant,
) bool {
	ended := s.clock.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost *fence.LostError
	switch {
	case errors.Is(err, fence.ErrNeverOwned):
		return assert.Empty(t, slices.DeleteFunc(slices.Clone(s.wins), func(w win) bool { return w.ended >= began }),
			"an owned tile was called never owned")
	case errors.As(err, &lost):
		g = lost.Current
	case err != nil:
		return assert.NoError(t, err)
	}
	if err == nil && g.ID == c.ID {
		s.wins = append(s.wins, win{g, began, ended})
	} else {
		s.seen = append(s.seen, shown{g, c.ID, began, ended})
	}
	*known = g
	return true
}

// checkWins wants each epoch granted once, and above all that were granted before it was asked for.
func (s *callRecord) checkWins(t *testing.T) (byEpoch map[fence.Epoch]fence.ClaimID, newest fence.Epoch) {
	t.Helper()
	byEpoch = map[fence.Epoch]fence.ClaimID{}
	for _, w := range s.wins {
		require.NotContains(t, byEpoch, w.grant.Epoch, "epoch %d was minted twice", w.grant.Epoch)
		byEpoch[w.grant.Epoch] = w.grant.ID
		newest = max(newest, w.grant.Epoch)
	}
	for _, w := range s.wins {
		for _, later := range s.wins {
			if w.ended < later.began {
				require.Less(t, w.grant.Epoch, later.grant.Epoch, "an epoch fell")
			}
		}
	}
	return byEpoch, newest
}

func (s *callRecord) check(t *testing.T, a fence.Authority) {
	byEpoch, newest := s.checkWins(t)
	for _, g := range s.seen {
		require.NotEqual(t, g.by, g.row.ID, "a call was refused in favour of itself")
		require.Equal(t, byEpoch[g.row.Epoch], g.row.ID, "epoch %d was shown, but not granted to that claim",
			g.row.Epoch)
		for _, w := range s.wins {
			if w.ended < g.began {
				require.LessOrEqual(t, w.grant.Epoch, g.row.Epoch, "an answer was out of date")
			}
			if w.grant.ID == g.row.ID {
				require.Less(t, w.began, g.ended, "an epoch was shown before it was asked for")
			}
		}
	}
	last, err := a.Lookup(t.Context(), s.tile)
	require.NoError(t, err)
	require.Equal(t, newest, last.Epoch)
	t.Logf("%d epochs minted, %d answers to others", len(s.wins), len(s.seen))
}
