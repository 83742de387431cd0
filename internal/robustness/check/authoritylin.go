package check

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// AuthorityLinearizable means: the authority's calls have an order that agrees with time and with the answers,
// each call checked by memfence.Authority on the tile's row. Calls whose answer never came may have taken
// effect at any time after they began, or never. Putting the authority back to an older state is one more
// operation, which sets the row.
//
// It is broken when a mint is not one conditional update, when an answer is read from a replica that is
// behind, when a release forgets the epoch, or when an ambiguous answer is resolved wrongly.
func AuthorityLinearizable(t *Tile) {
	model := porcupine.Model{
		Init: func() any { return history.Grant{} },
		Step: func(state, input, output any) (bool, any) {
			return stepAuthority(t.ID, state.(history.Grant), input.(*history.Operation))
		},
	}
	operations := t.calls(func(o *history.Operation) bool {
		switch o.Kind {
		case history.Claim, history.Promote, history.Release, history.Restore:
			return o.Result.Outcome != history.NotApplied
		case history.Lookup:
			return o.Result.Outcome == history.OK || o.Result.Outcome == history.NeverOwned
		}
		return false
	})
	t.linearize(model, operations, "calls to the authority have no order that explains their answers")
}

// stepAuthority runs one call on the executable specification, set to a row, and compares the answers.
func stepAuthority(id fence.TileID, row history.Grant, o *history.Operation) (bool, history.Grant) {
	ctx := context.Background()
	if o.Kind == history.Restore {
		return true, *o.Row
	}
	a, err := AuthorityAt(ctx, id, row)
	if err != nil {
		return false, row // a row that no authority can have
	}
	var g fence.Grant
	switch o.Kind {
	case history.Claim:
		g, err = a.Claim(ctx, claimOf(id, o.Claim))
	case history.Promote:
		g, err = a.Promote(ctx, claimOf(id, o.Claim))
	case history.Lookup:
		g, err = a.Lookup(ctx, id)
	case history.Release:
		err = a.Release(ctx, fence.Grant{Tile: id, Epoch: o.Row.Epoch, Contact: o.Row.Contact, ID: claimID(o.Row.ID)})
	}
	next, lookupErr := a.Lookup(ctx, id)
	if lookupErr != nil {
		next = fence.Grant{}
	}
	return o.Open() || sameAnswer(o, g, err), history.GrantOf(next)
}

// sameAnswer compares what the specification answers with what was answered.
func sameAnswer(o *history.Operation, g fence.Grant, err error) bool {
	var lost *fence.LostError
	switch {
	case err == nil:
		return o.Result.Outcome == history.OK && (o.Kind == history.Release || *o.Result.Grant == history.GrantOf(g))
	case errors.As(err, &lost):
		return o.Result.Outcome == history.Lost && *o.Result.Grant == history.GrantOf(lost.Current)
	case errors.Is(err, fence.ErrNeverOwned):
		return o.Result.Outcome == history.NeverOwned
	case errors.Is(err, fence.ErrInvalidArgument):
		return o.Result.Outcome == history.Invalid
	}
	return false
}

// AuthorityAt makes an authority that knows one tile, whose row is as given; epoch zero stands for none.
func AuthorityAt(ctx context.Context, id fence.TileID, row history.Grant) (*memfence.Authority, error) {
	a := memfence.NewAuthority()
	if row.Epoch == 0 {
		return a, nil
	}
	c := fence.Claim{Tile: id, Contact: row.Contact, ID: claimID(row.ID), Floor: row.Epoch - 1}
	if row.Contact == "" {
		c.Contact = "released"
	}
	g, err := a.Claim(ctx, c)
	if err == nil && row.Contact == "" {
		err = a.Release(ctx, g)
	}
	return a, err
}

func claimOf(id fence.TileID, c *history.ClaimCall) fence.Claim {
	return fence.Claim{Tile: id, Contact: c.Contact, ID: claimID(c.ID), Expected: c.Expected, Floor: c.Floor}
}

func claimID(s string) (id fence.ClaimID) {
	b, _ := hex.DecodeString(strings.ReplaceAll(s, "-", "")) // what is no UUID gives the zero ID, which matches nothing
	copy(id[:], b)
	return id
}
