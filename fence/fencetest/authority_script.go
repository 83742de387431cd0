package fencetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// authorityScripts are calls one after the other, each with its outcome. A step is
//
//	claim|promote|release <attempt> [@epoch] [>floor] <outcome>
//
// An attempt is a ClaimID, and its first letter the contact; one in upper case is about another tile. The first step of
// an attempt decides its arguments, @ being the epoch it expects (the record's if unset), and a later step is a retry
// with the same ones. a/b is the ClaimID of attempt a with the contact b. For a release @ is the epoch of the grant.
// The outcome is the epoch minted (=3), ok, lost, never or invalid. The model of authority_model.go has to agree,
// and to have the same records after every step.
var authorityScripts = []struct{ name, steps string }{
	{"Claim/first", "claim a =1; claim B =1"},
	// Knowing of a higher epoch gives no right to a tile that is held, nor has its holder one in another attempt.
	{"Claim/held", "claim a =1; claim b @0 lost; claim c >10 lost; claim a2 lost"},
	// A claim from the wrong epoch changes nothing, whatever its floor; from the right one it needs the tile released.
	{"Claim/expected", "claim a @1 never; claim a2 >6 =7; release a2 ok; claim b @0 >100 lost; " +
		"claim b2 @6 >100 lost; " +
		"claim b3 @8 >100 lost; claim c =8; claim d lost"},
	{"Claim/retry", "claim a =1; claim a =1; promote b =2; claim a lost; release b ok; claim c >2 =3; claim c =3"},
	// A copy of a claim that arrives after others have had the tile finds it free, and leaves it.
	{"Claim/late", "claim a =1; release a ok; claim a2 =2; promote b =3; release b ok; claim a lost; claim a2 lost"},
	// A copy of a claim that arrives after its own release does not take the tile, nor does one of a promotion.
	{"Claim/spent", "claim a =1; release a ok; claim a lost; promote b =2; release b ok; promote b lost"},
	{"Claim/floor", "claim a >4 =5; release a ok; claim b >0 =6; release b ok; claim c >5 =7; release c ok; " +
		"claim d >7 =8; " +
		"release d ok; claim e >1099511627776 =1099511627777; claim F >41 =42"},
	{"Promote/expected", "claim a =1; promote b @0 lost; promote b2 @2 lost; promote b3 @100 lost; promote c =2; " +
		"promote d @1 lost; promote c2 =3"}, // the last one from itself, which gets a new epoch
	{"Promote/released", "claim a =1; release a ok; promote b @2 lost; promote b2 @1 =2"},
	{"Promote/retry", "claim a =1; promote b =2; promote b =2; promote c >10 =11; promote c =11; " +
		"promote d >10 =12; promote d =12"},
	// The epoch that a superseded promotion expects is gone for good, also when the tile is free again.
	{"Promote/superseded", "claim a =1; promote b =2; promote c =3; promote b lost; release c ok; promote b lost"},
	{"Promote/floor", "claim a =1; promote b =2; promote c >1 =3; promote d >3 =4; promote e >4 =5; " +
		"promote f >9 =10; " +
		"promote g >5 =11; promote h @10 >1000 lost"},
	{"Promote/never-owned", "promote a @0 >9 never; promote b @1 never; promote c @7 never"},
	// A ClaimID belongs to one call: another contact, another floor, or a promotion instead of the claim is an error.
	{"ClaimID/reused", "claim a =1; claim a/b @0 invalid; claim a/a @0 >1 invalid; promote a/a @1 invalid"},
	{"Release/keeps-epoch", "claim a =1; release a ok; claim b =2; release b ok; claim c =3; release c ok; claim d =4"},
	// Epoch and ID both count, and a stale grant stays stale when the tile is free.
	{"Release/stale", "claim a =1; promote b =2; release a lost; release a @2 lost; " +
		"release b @3 lost; release b ok; release a lost"},
	{"Release/twice", "claim a =1; release a ok; release a ok; claim b =2; release a lost"},
	{"Release/never-owned", "release a @3 never"},
	{"Retire/floor", "claim a =1; claim B >99 =100; release B ok; retire =1; release a ok; retire =1; claim c =101"},
}

// script is one that is under way.
type script struct {
	*testing.T
	authority fence.Authority
	model     *model
	attempts  map[string]fence.Claim
	grants    map[string]fence.Grant
}

func runScript(t *testing.T, a fence.Authority, steps string) {
	m := &model{rows: map[fence.TileID]fence.Grant{}, tiles: []fence.TileID{newTile(), newTile()}}
	s := &script{T: t, authority: a, model: m,
		attempts: map[string]fence.Claim{}, grants: map[string]fence.Grant{}}
	for text := range strings.SplitSeq(steps, ";") {
		s.step(strings.TrimSpace(text))
		for _, tile := range s.model.tiles {
			if row, known := s.model.rows[tile]; known {
				requireRow(t, a, row)
			} else {
				requireNoRow(t, a, tile)
			}
		}
	}
}

func (s *script) step(text string) {
	s.Helper()
	f := strings.Fields(text)
	op, outcome := f[0], f[len(f)-1]
	if op == "retire" {
		require.Equal(s, "="+strconv.Itoa(s.model.retire()), outcome)
		n, err := s.authority.Retire(s.Context(), 0, fence.MaxList)
		require.NoError(s, err, text)
		require.Equal(s, outcome, "="+strconv.Itoa(n), text)
		return
	}
	name := f[1]
	c := s.attempt(name, f[2:len(f)-1])
	var want expectation
	var g fence.Grant
	var err error
	switch op {
	case "claim":
		want = s.model.claim(c)
		g, err = s.authority.Claim(s.Context(), c)
	case "promote":
		want = s.model.promote(c)
		g, err = s.authority.Promote(s.Context(), c)
	case "release":
		held := s.grants[name]
		if held.Epoch == 0 || len(f) > 3 {
			held = minted(c, c.Expected)
		}
		want = s.model.release(held)
		err = s.authority.Release(s.Context(), held)
	default:
		require.Fail(s, "no such step", text)
	}
	want.require(s, text, c, g, err)
	require.Equal(s, outcome, outcomeOf(g, err), "%s: %v", text, err)
	if was, again := s.grants[name]; again && g.Epoch > 0 {
		require.Equal(s, was, g, "%s: a retry has the same grant", text)
	}
	if g.Epoch > 0 {
		s.grants[name] = g
	}
}

// attempt returns the claim of an attempt, as it was made first, or for a release with the epoch that is given.
func (s *script) attempt(name string, settings []string) fence.Claim {
	s.Helper()
	c, known := s.attempts[name]
	if known && len(settings) == 0 {
		return c
	}
	if !known {
		tile := s.model.tiles[0]
		if strings.ToUpper(name[:1]) == name[:1] {
			tile = s.model.tiles[1]
		}
		c = newPromotion(tile, name[:1]+":1", s.model.rows[tile].Epoch)
		if of, contact, borrowed := strings.Cut(name, "/"); borrowed {
			c.ID, c.Contact = s.attempts[of].ID, contact+":1"
		}
		defer func() { s.attempts[name] = c }()
	}
	for _, setting := range settings {
		n, err := fence.ParseNumber(setting[1:])
		require.NoError(s, err, setting)
		if setting[0] == '@' {
			c.Expected = fence.Epoch(n)
		} else {
			c.Floor = fence.Epoch(n)
		}
	}
	return c
}

func outcomeOf(g fence.Grant, err error) string {
	switch {
	case errors.Is(err, fence.ErrLost):
		return "lost"
	case errors.Is(err, fence.ErrNeverOwned):
		return "never"
	case errors.Is(err, fence.ErrInvalidArgument):
		return "invalid"
	case err != nil:
		return err.Error()
	case g.Epoch == 0:
		return "ok"
	}
	return fmt.Sprintf("=%d", g.Epoch)
}
