package memfence

import (
	"context"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// Authority is the epoch authority in one process, and the executable specification of
// fence.Authority: each method is the condition under which the row changes, the change, and the
// judgement of the row that all back ends share. Create one with NewAuthority.
//
// It is safe for concurrent use. It remembers every tile that was ever claimed and forgets everything
// with the process, so it must not be the authority of more than one process.
type Authority struct {
	mu   sync.Mutex
	rows map[fence.TileID]fence.Grant // a tile never owned has none
}

// NewAuthority returns an authority that knows no tile.
func NewAuthority() *Authority {
	return &Authority{rows: make(map[fence.TileID]fence.Grant)}
}

var _ fence.Authority = (*Authority)(nil)

// Claim takes a tile that nobody holds; see fence.Authority. A ctx that is done gives a
// *fence.StoreError with ErrNotApplied.
func (a *Authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	if err := notStarted(ctx, "claim", c.Tile); err != nil {
		return fence.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	row := a.rows[c.Tile]
	neverOwned := row.Epoch == 0
	// A claim that has minted the row's epoch and released it is spent: a copy of it that arrives late
	// must not take the tile for somebody who has let go of it.
	released := !row.Held() && row.ID != c.ID && row.Epoch < fence.MaxNumber
	if neverOwned || released {
		row = fence.Grant{Tile: c.Tile, Epoch: max(row.Epoch, c.Above) + 1, Contact: c.Contact, ID: c.ID}
		a.rows[c.Tile] = row
	}
	return verdict.Claim(&c, row)
}

// Promote takes a tile over from the epoch c.Expected; see fence.Authority. A ctx that is done gives a
// *fence.StoreError with ErrNotApplied.
func (a *Authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := c.Validate(); err != nil {
		return fence.Grant{}, err
	}
	if err := notStarted(ctx, "promote", c.Tile); err != nil {
		return fence.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	row := a.rows[c.Tile]
	if row.Epoch > 0 && row.Epoch == c.Expected && row.ID != c.ID {
		row = fence.Grant{Tile: c.Tile, Epoch: verdict.Minted(&c), Contact: c.Contact, ID: c.ID}
		a.rows[c.Tile] = row
	}
	return verdict.Promote(&c, row)
}

// Lookup reads a tile's record; see fence.Authority. A ctx that is done gives a *fence.StoreError with
// ErrNotApplied.
func (a *Authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	if err := verdict.ValidateTile(tile); err != nil {
		return fence.Grant{}, err
	}
	if err := notStarted(ctx, "lookup", tile); err != nil {
		return fence.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return verdict.Lookup(tile, a.rows[tile])
}

// Release gives a tile up and keeps its epoch; see fence.Authority. A ctx that is done gives a
// *fence.StoreError with ErrNotApplied.
func (a *Authority) Release(ctx context.Context, g fence.Grant) error {
	if err := verdict.ValidateGrant(&g); err != nil {
		return err
	}
	if err := notStarted(ctx, "release", g.Tile); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	row := a.rows[g.Tile]
	if row.Epoch == g.Epoch && row.ID == g.ID {
		row.Contact = ""
		a.rows[g.Tile] = row
	}
	return verdict.Release(&g, row)
}

// notStarted refuses a call whose context is already done. Nothing after it takes time.
func notStarted(ctx context.Context, op string, tile fence.TileID) error {
	if ctx.Err() == nil {
		return nil
	}
	return &fence.StoreError{Op: op, Tile: tile, Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
}
