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

// authority is a fence.Authority in one process, and the executable specification of it: present is the conditions
// under which a tile's row changes, and the changes; package verdict has the judgements of the row that all back ends
// share. A ctx that is done gives a *fence.StoreError with ErrNotApplied.
type authority struct {
	methods
	world func() fence.World // minted when it is asked for: checkers make an authority for each step of a history

	mu    sync.Mutex
	rows  map[fence.TileID]record // a tile without a record has none
	floor fence.Epoch             // the highest epoch of any record that was ever removed
	made  []made                  // of the records, in order
	count uint64                  // records that were ever made
}

// made says when a record was made: it was the nth.
type made struct {
	n    uint64
	tile fence.TileID
}

// methods are Claim, Promote, Lookup and Release.
type methods = verdict.Authority

type record struct {
	fence.Grant
	released time.Time // when; of a tile that is not held
}

func (r record) known() bool { return r.Epoch > 0 }

// NewAuthority returns an authority that knows no tile. It forgets everything with the process, so it must not be the
// authority of more than one process.
func NewAuthority() fence.Authority {
	a := &authority{rows: make(map[fence.TileID]record),
		world: sync.OnceValue(func() fence.World { return fence.World{ID: fence.NewWorldID()} })}
	a.Present = a.present
	return a
}

// World is a world without a name, of this authority alone; see fence.Authority.
func (a *authority) World(ctx context.Context) (fence.World, error) {
	if err := guard.Ended(ctx, "world", 0); err != nil {
		return fence.World{}, err
	}
	return a.world(), nil
}

// ClaimMany makes claims one after the other; see fence.Authority.
func (a *authority) ClaimMany(ctx context.Context, claims []fence.Claim) []fence.ClaimResult {
	results := make([]fence.ClaimResult, len(claims))
	for i, c := range claims {
		results[i].Grant, results[i].Err = a.Claim(ctx, c)
	}
	return results
}

// present changes the row as a call wants, if its conditions hold, and returns the row.
func (a *authority) present(ctx context.Context, c verdict.Call) (fence.Grant, error) {
	if err := guard.Ended(ctx, c.String(), c.Tile); err != nil {
		return fence.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	row, found := a.rows[c.Tile]
	epoch := max(c.Expected, c.Floor) + 1
	expected := found && row.Epoch == c.Expected
	switch c.Kind {
	case verdict.ClaimNew:
		if !found {
			row = a.mint(&c, max(a.floor+1, epoch))
		}
	case verdict.ClaimReleased:
		if expected && !row.Held() && row.ID != c.ID {
			row = a.mint(&c, epoch)
		}
	case verdict.Promote:
		if expected && row.ID != c.ID {
			row = a.mint(&c, epoch)
		}
	case verdict.Release:
		if expected && row.ID == c.ID && row.Held() {
			row.Contact, row.released = "", time.Now()
			a.rows[c.Tile] = row
		}
	}
	return row.Grant, nil
}

// mint gives a claim its tile.
func (a *authority) mint(c *verdict.Call, epoch fence.Epoch) record {
	r := record{Grant: fence.Grant{Tile: c.Tile, Epoch: epoch, Contact: c.Contact, ID: c.ID,
		Minted: time.Now().UTC().Truncate(time.Millisecond), Mints: a.rows[c.Tile].Mints + 1}}
	if r.Mints == 1 {
		a.count++
		a.made = append(a.made, made{n: a.count, tile: c.Tile})
	}
	a.rows[c.Tile] = r
	return r
}

// List returns the records of the tiles after one; see fence.Authority. It looks at all of them each time.
func (a *authority) List(ctx context.Context, after fence.TileID, limit int) ([]fence.Grant, error) {
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

// Added returns the records made since a bookmark, which is how many had been made; see fence.Authority.
func (a *authority) Added(ctx context.Context, since fence.Bookmark, limit int) ([]fence.Grant, fence.Bookmark, error) {
	if err := cmp.Or(verdict.ValidateLimit(limit), guard.Ended(ctx, "list", 0)); err != nil {
		return nil, "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if since == "" {
		return nil, verdict.Bookmark(a.count), nil
	}
	n, err := verdict.ParseBookmark(since, 1)
	if err != nil || n[0] > a.count {
		return nil, "", err
	}
	from, _ := slices.BinarySearchFunc(a.made, n[0]+1, func(m made, n uint64) int { return cmp.Compare(m.n, n) })
	var grants []fence.Grant
	for _, m := range a.made[from:min(len(a.made), from+limit)] {
		grants, n[0] = append(grants, a.rows[m.tile].Grant), m.n
	}
	return grants, verdict.Bookmark(n[0]), nil
}

// Retire removes records of tiles released long ago; see fence.Authority. It looks at all of them.
func (a *authority) Retire(ctx context.Context, releasedFor time.Duration, limit int) (int, error) {
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
	a.made = slices.DeleteFunc(a.made, func(m made) bool { return !a.rows[m.tile].known() })
	return retired, nil
}
