package pgfence

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// DefaultTable is the table of tiles when Config names none.
const DefaultTable = "tilefence_tiles"

// Config holds the optional settings of an Authority.
type Config struct {
	// Table is the table of tiles: a name of lower-case letters, digits and underscores, of at most 57
	// bytes, not starting with a digit, with a schema of the same form and a dot before it if wanted.
	// Without a schema the connection's search_path decides. Empty means DefaultTable.
	Table string
}

// Authority mints epochs in a PostgreSQL table. Create one with New. It is safe for concurrent use.
type Authority struct {
	pool  *pgxpool.Pool
	table tableName
	sql   statements
}

var _ fence.Authority = (*Authority)(nil)

// New returns an authority on the pool's database, whose table Migrate creates. It does no I/O. A nil
// cfg means the defaults. The error is a *fence.ArgumentError.
func New(pool *pgxpool.Pool, cfg *Config) (*Authority, error) {
	if pool == nil {
		return nil, &fence.ArgumentError{Field: "pool", Value: nil, Want: "a *pgxpool.Pool"}
	}
	name := DefaultTable
	if cfg != nil && cfg.Table != "" {
		name = cfg.Table
	}
	table, err := parseTable(name)
	if err != nil {
		return nil, err
	}
	return &Authority{pool: pool, table: table, sql: loadStatements(table)}, nil
}

// Claim takes a tile that nobody holds; see fence.Authority, and the package comment for failures.
func (a *Authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	var g fence.Grant
	err := a.settle(ctx, a.claiming(&c), func(row fence.Grant) (err error) {
		g, err = verdict.Claim(&c, row)
		return err
	})
	return g, err
}

// claiming is the call a claim makes.
func (a *Authority) claiming(c *fence.Claim) call {
	tile, above, claim := int64(c.Tile), int64(c.Above), c.ID.String()
	if c.Expected == 0 {
		return call{op: "claim", tile: c.Tile, writes: []statement{
			{a.sql.claimNew, []any{tile, above, c.Contact, claim}},
			{a.sql.raise, []any{tile, claim}},
		}}
	}
	return call{op: "claim", tile: c.Tile, writes: []statement{
		{a.sql.claimReleased, []any{tile, above, c.Contact, claim, int64(c.Expected)}},
	}}
}

// ClaimMany makes many claims; see fence.Authority.
func (a *Authority) ClaimMany(ctx context.Context, claims []fence.Claim) []fence.ClaimResult {
	results := make([]fence.ClaimResult, len(claims))
	for i, c := range claims {
		results[i].Grant, results[i].Err = a.Claim(ctx, c)
	}
	return results
}

// Promote takes a tile over from the epoch c.Expected; see fence.Authority, and the package comment for
// failures.
func (a *Authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	call := call{op: "promote", tile: c.Tile, writes: []statement{
		{a.sql.promote, []any{int64(c.Tile), int64(c.Above), c.Contact, c.ID.String(), int64(c.Expected)}},
	}}
	var g fence.Grant
	err := a.settle(ctx, call, func(row fence.Grant) (err error) {
		g, err = verdict.Promote(&c, row)
		return err
	})
	return g, err
}

// Lookup reads a tile's record; see fence.Authority, and the package comment for failures.
func (a *Authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	if err := verdict.ValidateTile(tile); err != nil {
		return fence.Grant{}, err
	}
	row, err := a.present(ctx, call{op: "lookup", tile: tile})
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
	call := call{op: "release", tile: g.Tile, writes: []statement{
		{a.sql.release, []any{int64(g.Tile), int64(g.Epoch), g.ID.String()}},
	}}
	return a.settle(ctx, call, func(row fence.Grant) error { return verdict.Release(&g, row) })
}
