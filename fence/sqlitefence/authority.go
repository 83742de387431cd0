package sqlitefence

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// Authority mints epochs in an SQLite database. Create one with Open. It is safe for concurrent use.
type Authority struct {
	db *database
}

var _ fence.Authority = (*Authority)(nil)

// Claim takes a tile that nobody holds; see fence.Authority, and the package comment for failures.
func (a *Authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	args := []any{int64(c.Tile), int64(c.Above), c.Contact, c.ID[:]}
	row, err := a.db.present(ctx, call{op: "claim", tile: c.Tile, writes: []write{
		{claimNew, args}, {claimReleased, args},
	}})
	if err != nil {
		return fence.Grant{}, err
	}
	return verdict.Claim(&c, row)
}

// Promote takes a tile over from the epoch c.Expected; see fence.Authority, and the package comment for
// failures.
func (a *Authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	row, err := a.db.present(ctx, call{op: "promote", tile: c.Tile, writes: []write{
		{promote, []any{int64(c.Tile), int64(c.Above), c.Contact, c.ID[:], int64(c.Expected)}},
	}})
	if err != nil {
		return fence.Grant{}, err
	}
	return verdict.Promote(&c, row)
}

// Lookup reads a tile's record; see fence.Authority, and the package comment for failures.
func (a *Authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	if err := verdict.ValidateTile(tile); err != nil {
		return fence.Grant{}, err
	}
	row, err := a.db.present(ctx, call{op: "lookup", tile: tile})
	if err != nil {
		return fence.Grant{}, err
	}
	return verdict.Lookup(tile, row)
}

// Release gives a tile up and keeps its epoch; see fence.Authority, and the package comment for failures.
func (a *Authority) Release(ctx context.Context, g fence.Grant) error {
	if err := verdict.ValidateGrant(&g); err != nil {
		return err
	}
	row, err := a.db.present(ctx, call{op: "release", tile: g.Tile, writes: []write{
		{release, []any{int64(g.Tile), int64(g.Epoch), g.ID[:]}},
	}})
	if err != nil {
		return err
	}
	return verdict.Release(&g, row)
}

// Close waits for the call in progress and closes the database; a database in memory is gone with it.
// Calls made later fail with fence.ErrNotApplied. Closing twice is no error.
func (a *Authority) Close() error { return a.db.close() }
