package memfence

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
	"github.com/tilefence/tilefence/internal/guard"
)

// Authority is the epoch authority in one process, and the executable specification of
// fence.Authority: each method is the condition under which the row changes, the change, and the
// judgement of the row that all back ends share. Create one with NewAuthority.
//
// It is safe for concurrent use. It forgets everything with the process, so it must not be the authority
// of more than one process.
type Authority struct {
	mu    sync.Mutex
	rows  map[fence.TileID]record // a tile without a record has none
	floor fence.Epoch             // the highest epoch of any record that was ever removed
}

type record struct {
	fence.Grant
	released time.Time // when; of a tile that is not held
}

// NewAuthority returns an authority that knows no tile.
func NewAuthority() *Authority {
	return &Authority{rows: make(map[fence.TileID]record)}
}

var _ fence.Authority = (*Authority)(nil)

// Claim takes a tile that is not held; see fence.Authority. A ctx that is done gives a
// *fence.StoreError with ErrNotApplied.
func (a *Authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := cmp.Or(c.Validate(), guard.Ended(ctx, "claim", c.Tile)); err != nil {
		return fence.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	row, found := a.rows[c.Tile]
	switch {
	case !found && c.Expected == 0:
		a.mint(&c, max(a.floor+1, verdict.Minted(&c)))
	case found && !row.Held() && row.Epoch == c.Expected && row.ID != c.ID:
		a.mint(&c, verdict.Minted(&c))
	}
	return verdict.Claim(&c, a.rows[c.Tile].Grant)
}

// ClaimMany makes claims one after the other; see fence.Authority.
func (a *Authority) ClaimMany(ctx context.Context, claims []fence.Claim) []fence.ClaimResult {
	results := make([]fence.ClaimResult, len(claims))
	for i, c := range claims {
		results[i].Grant, results[i].Err = a.Claim(ctx, c)
	}
	return results
}

// Promote takes a tile over from the epoch c.Expected; see fence.Authority. A ctx that is done gives a
// *fence.StoreError with ErrNotApplied.
func (a *Authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	if err := cmp.Or(c.Validate(), guard.Ended(ctx, "promote", c.Tile)); err != nil {
		return fence.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if row, found := a.rows[c.Tile]; found && row.Epoch == c.Expected && row.ID != c.ID {
		a.mint(&c, verdict.Minted(&c))
	}
	return verdict.Promote(&c, a.rows[c.Tile].Grant)
}

// mint gives a claim its tile.
func (a *Authority) mint(c *fence.Claim, epoch fence.Epoch) {
	a.rows[c.Tile] = record{Grant: fence.Grant{Tile: c.Tile, Epoch: epoch, Contact: c.Contact, ID: c.ID,
		Minted: time.Now().UTC().Truncate(time.Millisecond), Mints: a.rows[c.Tile].Mints + 1}}
}

// Lookup reads a tile's record; see fence.Authority. A ctx that is done gives a *fence.StoreError with
// ErrNotApplied.
func (a *Authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	if err := cmp.Or(guard.Tile(tile), guard.Ended(ctx, "lookup", tile)); err != nil {
		return fence.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return verdict.Lookup(tile, a.rows[tile].Grant)
}

// Release gives a tile up and keeps its epoch; see fence.Authority. A ctx that is done gives a
// *fence.StoreError with ErrNotApplied.
func (a *Authority) Release(ctx context.Context, g fence.Grant) error {
	if err := cmp.Or(verdict.ValidateGrant(&g), guard.Ended(ctx, "release", g.Tile)); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	row := a.rows[g.Tile]
	if row.Epoch == g.Epoch && row.ID == g.ID && row.Held() {
		row.Contact, row.released = "", time.Now()
		a.rows[g.Tile] = row
	}
	return verdict.Release(&g, row.Grant)
}

// List returns the records of the tiles after one; see fence.Authority. It looks at all of them each time.
func (a *Authority) List(ctx context.Context, after fence.TileID, limit int) ([]fence.Grant, error) {
	if err := cmp.Or(verdict.ValidateLimit(limit), guard.Ended(ctx, "list", 0)); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var grants []fence.Grant
	for tile, row := range a.rows {
		if tile > after {
			grants = append(grants, row.Grant)
		}
	}
	slices.SortFunc(grants, func(a, b fence.Grant) int { return cmp.Compare(a.Tile, b.Tile) })
	return grants[:min(len(grants), limit)], nil
}

// Retire removes records of tiles released long ago; see fence.Authority. It looks at all of them.
func (a *Authority) Retire(ctx context.Context, releasedFor time.Duration, limit int) (int, error) {
	if err := cmp.Or(verdict.ValidateRetire(releasedFor, limit), guard.Ended(ctx, "retire", 0)); err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	retired := 0
	for tile, row := range a.rows {
		if retired == limit {
			break
		}
		if row.Held() || row.Epoch > fence.MaxRetired || time.Since(row.released) < releasedFor {
			continue
		}
		a.floor = max(a.floor, row.Epoch)
		delete(a.rows, tile)
		retired++
	}
	return retired, nil
}
