package simulation

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
)

// registry is the epoch authority's server. It can be down, and be restored to an older state.
type registry struct {
	mutant Mutant

	mu   sync.Mutex
	rows *memfence.Authority
	past map[fence.TileID][]fence.Grant // every row a tile had, oldest first
	down bool
}

func newRegistry(m Mutant) *registry {
	return &registry{mutant: m, rows: memfence.NewAuthority(), past: map[fence.TileID][]fence.Grant{}}
}

// run makes a call on the rows and keeps what it changed.
func (r *registry) run(tile fence.TileID, call func(*memfence.Authority)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return errDown
	}
	before := r.row(tile)
	call(r.rows)
	after := r.row(tile)
	if r.mutant == ReleaseForgets && before.Held() && !after.Held() {
		after = fence.Grant{Tile: tile}
		r.set(after)
	}
	if after != before {
		r.past[tile] = append(r.past[tile], before)
	}
	return nil
}

// row is a tile's row; its epoch is zero for none.
func (r *registry) row(tile fence.TileID) fence.Grant {
	g, err := r.rows.Lookup(context.Background(), tile)
	if err != nil {
		return fence.Grant{Tile: tile}
	}
	return g
}

// set replaces a tile's row, and keeps those of the other tiles.
func (r *registry) set(row fence.Grant) {
	rows := memfence.NewAuthority()
	for tile := range r.past {
		if tile != row.Tile {
			enter(rows, r.row(tile))
		}
	}
	enter(rows, row)
	r.rows = rows
}

// enter gives an authority that knows nothing of a tile a row.
func enter(rows *memfence.Authority, row fence.Grant) {
	if row.Epoch == 0 {
		return
	}
	c := fence.Claim{Tile: row.Tile, Contact: row.Contact, ID: row.ID, Floor: row.Epoch - 1}
	if !row.Held() {
		c.Contact = "released"
	}
	g, err := rows.Claim(context.Background(), c)
	if err == nil && !row.Held() {
		err = rows.Release(context.Background(), g)
	}
	if err != nil {
		panic(err) // a row that an authority had can be entered into an empty one
	}
}

// older picks a row that a tile had up to back changes ago; false if it had none.
func (r *registry) older(tile fence.TileID, rng *rand.Rand, back int) (fence.Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	past := r.past[tile]
	if len(past) == 0 {
		return fence.Grant{}, false
	}
	return past[len(past)-1-rng.IntN(min(len(past), back))], true
}

// restore puts a tile's row back.
func (r *registry) restore(row fence.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past[row.Tile] = append(r.past[row.Tile], r.row(row.Tile))
	r.set(row)
}

func (r *registry) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

// authority is one client's way to the registry: a fence.Authority. Only what asks about one tile travels;
// the processors under test make no other call.
type authority struct {
	fence.Authority
	registry *registry
	host     *host
}

// Claim implements fence.Authority.
func (a *authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return a.ask(ctx, "claim", c.Tile, func(rows *memfence.Authority) (fence.Grant, error) {
		return rows.Claim(context.Background(), c)
	})
}

// Promote implements fence.Authority.
func (a *authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return a.ask(ctx, "promote", c.Tile, func(rows *memfence.Authority) (fence.Grant, error) {
		return rows.Promote(context.Background(), c)
	})
}

// Lookup implements fence.Authority.
func (a *authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	g, err := a.ask(ctx, "lookup", tile, func(rows *memfence.Authority) (fence.Grant, error) {
		return rows.Lookup(context.Background(), tile)
	})
	return g, unread(err)
}

// Release implements fence.Authority.
func (a *authority) Release(ctx context.Context, g fence.Grant) error {
	_, err := a.ask(ctx, "release", g.Tile, func(rows *memfence.Authority) (fence.Grant, error) {
		return fence.Grant{}, rows.Release(context.Background(), g)
	})
	return err
}

func (a *authority) ask(
	ctx context.Context, op string, tile fence.TileID, call func(*memfence.Authority) (fence.Grant, error),
) (fence.Grant, error) {
	type reply struct {
		grant fence.Grant
		err   error
	}
	got := &reply{}
	err := a.host.ask(ctx, op, tile, func() (bool, error) {
		r := &reply{} // of this delivery; a late one has its own
		err := a.registry.run(tile, func(rows *memfence.Authority) { r.grant, r.err = call(rows) })
		*got = *r
		return true, err
	})
	if err != nil {
		return fence.Grant{}, err
	}
	return got.grant, got.err
}
