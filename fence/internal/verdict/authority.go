package verdict

import (
	"context"
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
	"github.com/tilefence/tilefence/internal/guard"
)

// Kind is what a call does to a tile's row.
type Kind int

// The kinds.
const (
	Lookup        Kind = iota + 1
	ClaimNew           // a claim that expects no row
	ClaimReleased      // a claim that expects a released row
	Promote
	Release
)

// String is the name of the method, for errors.
func (k Kind) String() string {
	return enum.Name(k, "kind", "lookup", "claim", "claim", "promote", "release")
}

// Call is what one method asks of the database: a conditional write to the tile's row, unless it is a lookup, then the
// row. It takes effect once however often it is presented, so that presenting it again also reveals its outcome.
type Call struct {
	Kind
	Tile fence.TileID
	// The rest is for writes.
	Expected fence.Epoch // the row's epoch before; of a release, the epoch it gives up
	Floor    fence.Epoch
	Contact  string
	ID       fence.ClaimID
}

// Claiming is the call of a claim.
func Claiming(c *fence.Claim) Call {
	call := Promoting(c)
	if call.Kind = ClaimReleased; c.Expected == 0 {
		call.Kind = ClaimNew
	}
	return call
}

// Promoting is the call of a promotion.
func Promoting(c *fence.Claim) Call {
	return Call{Kind: Promote, Tile: c.Tile, Expected: c.Expected, Floor: c.Floor, Contact: c.Contact, ID: c.ID}
}

// Authority is the methods of fence.Authority that concern one tile. Present carries out a call and returns the row it
// left (epoch zero for none), or a *fence.StoreError.
type Authority struct {
	Present func(ctx context.Context, c Call) (row fence.Grant, err error)
}

// Claim implements fence.Authority.
func (a Authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	return a.settle(ctx, Claiming(&c), func(row fence.Grant) (fence.Grant, error) { return JudgeClaim(&c, row) })
}

// Promote implements fence.Authority.
func (a Authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	return a.settle(ctx, Promoting(&c), func(row fence.Grant) (fence.Grant, error) { return judgePromote(&c, row) })
}

// Lookup implements fence.Authority.
func (a Authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	if err := guard.Tile(tile); err != nil {
		return fence.Grant{}, err
	}
	row, err := a.Present(ctx, Call{Kind: Lookup, Tile: tile})
	switch {
	case err != nil:
	case row.Epoch == 0:
		err = neverOwned(tile)
	default:
		if err = validateRow(&row); err != nil {
			row = fence.Grant{}
		}
	}
	return row, err
}

// Release implements fence.Authority.
func (a Authority) Release(ctx context.Context, g fence.Grant) error {
	if err := validateGrant(&g); err != nil {
		return err
	}
	_, err := a.settle(ctx, Call{Kind: Release, Tile: g.Tile, Expected: g.Epoch, ID: g.ID},
		func(row fence.Grant) (fence.Grant, error) { return fence.Grant{}, judgeRelease(&g, row) })
	return err
}

// settle presents a call until the row that it leaves decides the outcome. It loops only if another call changed
// the row during the round trip, so one of them always makes progress.
func (a Authority) settle(
	ctx context.Context, c Call, judge func(row fence.Grant) (fence.Grant, error),
) (fence.Grant, error) {
	for {
		row, err := a.Present(ctx, c)
		if err != nil {
			return fence.Grant{}, err
		}
		if g, err := judge(row); !errors.Is(err, ErrAgain) {
			return g, err
		}
	}
}
