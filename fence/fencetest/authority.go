// Package fencetest holds the conformance suites of package fence's back-end interfaces: RunAuthority for
// fence.Authority and RunStore for fence.Store. A back end passes the suite of its interface, or it is not one.
// The suites are the contracts in the doc comments of package fence, as tests; each says how it is used
// and what it takes.
package fencetest

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// RunAuthority runs the conformance suite of fence.Authority: the contract in its doc comments, as
// tests. Every back end runs it:
//
//	func TestAuthority(t *testing.T) {
//		fencetest.RunAuthority(t, func(t *testing.T) fence.Authority { return memfence.NewAuthority() })
//	}
//
// newAuthority is called once for each test of the suite, gives it an authority without records, and leaves
// cleaning up to t.Cleanup.
// The suite takes some thousand calls, many of them at once. Where it is random, it logs the seed, and
// the environment variable TILEFENCE_SEED sets it; the property test is rapid's, which prints its own.
func RunAuthority(t *testing.T, newAuthority func(t *testing.T) fence.Authority) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, fence.Authority)
	}{
		{"Claim/floor", claimFloor},
		{"Lookup/every-bit", lookupEveryBit},
		{"Minted", mintedWhen},
		{"World", authorityWorld},
		{"ClaimMany/twice", claimManyTwice},
		{"ClaimMany/duplicates", claimManyDuplicates},
		{"ClaimMany/context-done", claimManyDone},
		{"List", list},
		{"Added", added},
		{"Retire/which", retireWhich},
		{"Retire/limit", retireLimit},
		{"Retire/reused", retireReused},
		{"Arguments", arguments},
		{"Context/done", contextDone},
		{"Context/ends-midway", contextEndsMidway},
		{"Race/claim", raceClaim},
		{"Race/reclaim", raceReclaim},
		{"Race/promote", racePromote},
		{"Race/same-claim", raceSameClaim},
		{"Race/storm", raceStorm},
		{"Race/claim-many", raceClaimMany},
		{"Race/retire", raceRetire},
		{"Race/added", raceAdded},
		{"Model", authorityModel},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newAuthority(t)) })
	}
}

// newTile returns a tile no test has used. The random number of a ClaimID is as good as any.
func newTile() fence.TileID {
	id := fence.NewClaimID()
	return fence.TileID(binary.BigEndian.Uint64(id[8:]) >> 1)
}

func newClaim(tile fence.TileID, contact string) fence.Claim {
	return fence.Claim{Tile: tile, Contact: contact, ID: fence.NewClaimID()}
}

func newPromotion(tile fence.TileID, contact string, expected fence.Epoch) fence.Claim {
	c := newClaim(tile, contact)
	c.Expected = expected
	return c
}

// minted is the grant a claim gets if it mints epoch, but for Minted and Mints.
func minted(c fence.Claim, epoch fence.Epoch) fence.Grant {
	return fence.Grant{Tile: c.Tile, Epoch: epoch, Contact: c.Contact, ID: c.ID}
}

func released(g fence.Grant) fence.Grant {
	g.Contact = ""
	return g
}

// bare is a grant without what is for people only.
func bare(g fence.Grant) fence.Grant {
	g.Minted, g.Mints = time.Time{}, 0
	return g
}

// requireGrant wants the same grant; Minted and Mints only where want has them.
func requireGrant(t require.TestingT, want, got fence.Grant, msg ...any) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.False(t, got.Minted.IsZero(), msg...)
	require.Positive(t, got.Mints, msg...)
	if want.Minted.IsZero() {
		got.Minted = time.Time{}
	}
	if want.Mints == 0 {
		got.Mints = 0
	}
	require.Equal(t, want, got, msg...)
}

func mustClaim(t *testing.T, a fence.Authority, c fence.Claim) fence.Grant {
	t.Helper()
	g, err := a.Claim(t.Context(), c)
	require.NoError(t, err)
	return g
}

func mustPromote(t *testing.T, a fence.Authority, c fence.Claim) fence.Grant {
	t.Helper()
	g, err := a.Promote(t.Context(), c)
	require.NoError(t, err)
	return g
}

func requireRow(t *testing.T, a fence.Authority, want fence.Grant) {
	t.Helper()
	got, err := a.Lookup(t.Context(), want.Tile)
	require.NoError(t, err)
	requireGrant(t, want, got)
}

func requireNoRow(t *testing.T, a fence.Authority, tile fence.TileID) {
	t.Helper()
	g, err := a.Lookup(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrNeverOwned)
	require.Zero(t, g)
}

// requireLost wants a refusal that names the holder, and the row unchanged.
func requireLost(t *testing.T, a fence.Authority, err error, current fence.Grant) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrLost)
	var lost *fence.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, current.Tile, lost.Tile)
	requireGrant(t, current, lost.Current)
	requireRow(t, a, current)
}

func requireArgument(t *testing.T, err error, field string, msg ...any) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrInvalidArgument, msg...)
	var bad *fence.ArgumentError
	require.ErrorAs(t, err, &bad, msg...)
	require.Equal(t, field, bad.Field, msg...)
	require.NotEmpty(t, bad.Want, msg...)
}

// notApplied wants a *fence.StoreError that keeps the rules, and reports whether it says that nothing was
// applied; otherwise it says that the outcome is unknown.
func notApplied(t *testing.T, err error, tile fence.TileID) bool {
	t.Helper()
	var store *fence.StoreError
	require.ErrorAs(t, err, &store)
	require.Equal(t, tile, store.Tile)
	require.NotEmpty(t, store.Op)
	require.Error(t, store.Err)
	require.NotEqual(t, errors.Is(err, fence.ErrNotApplied), errors.Is(err, fence.ErrUnknownOutcome), "%v", err)
	return errors.Is(err, fence.ErrNotApplied)
}

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
