package simulation

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// registry is the epoch authority's server. It can be down, and be restored to an older state.
type registry struct {
	mutant Mutant

	mu    sync.Mutex
	tiles map[fence.TileID]fence.Authority
	past  map[fence.TileID][]history.Grant // every row a tile had, oldest first
	down  bool
	noted map[fence.TileID]func(history.Grant) // called, with the lock held, when the row has changed
}

func newRegistry(m Mutant, tiles []fence.TileID) *registry {
	r := &registry{mutant: m, tiles: map[fence.TileID]fence.Authority{}, past: map[fence.TileID][]history.Grant{},
		noted: map[fence.TileID]func(history.Grant){}}
	for _, id := range tiles {
		r.tiles[id] = memfence.NewAuthority()
	}
	return r
}

// run makes a call on a tile's row and keeps what it changed.
func (r *registry) run(tile fence.TileID, call func(fence.Authority)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return errDown
	}
	before := r.row(tile)
	call(r.tiles[tile])
	after := r.row(tile)
	if r.mutant == ReleaseForgets && before.Contact != "" && after.Contact == "" {
		r.tiles[tile], after = memfence.NewAuthority(), history.Grant{}
	}
	if after != before {
		r.past[tile] = append(r.past[tile], before)
		if note := r.noted[tile]; note != nil {
			note(after)
		}
	}
	return nil
}

// note has f called for each change that a client makes to a tile's row; nil ends it.
func (r *registry) note(tile fence.TileID, f func(history.Grant)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted[tile] = f
}

// row is a tile's row; its epoch is zero for none.
func (r *registry) row(tile fence.TileID) history.Grant {
	g, _ := r.tiles[tile].Lookup(context.Background(), tile) // an error means that there is none
	return history.GrantOf(g)
}

// current is a tile's row.
func (r *registry) current(tile fence.TileID) history.Grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.row(tile)
}

// older picks a row that a tile had up to back changes ago; false if it had none.
func (r *registry) older(tile fence.TileID, rng *rand.Rand, back int) (history.Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	past := r.past[tile]
	if len(past) == 0 {
		return history.Grant{}, false
	}
	return past[len(past)-1-rng.IntN(min(len(past), back))], true
}

// restore puts a tile's row back to one that it had.
func (r *registry) restore(tile fence.TileID, row history.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, err := check.AuthorityAt(context.Background(), tile, row)
	if err != nil {
		panic(err) // an authority had it
	}
	r.past[tile] = append(r.past[tile], r.row(tile))
	r.tiles[tile] = a
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
	return a.ask(ctx, "claim", c.Tile, func(rows fence.Authority) (fence.Grant, error) {
		return rows.Claim(context.Background(), c)
	})
}

// Promote implements fence.Authority.
func (a *authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return a.ask(ctx, "promote", c.Tile, func(rows fence.Authority) (fence.Grant, error) {
		return rows.Promote(context.Background(), c)
	})
}

// Lookup implements fence.Authority.
func (a *authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	g, err := a.ask(ctx, "lookup", tile, func(rows fence.Authority) (fence.Grant, error) {
		return rows.Lookup(context.Background(), tile)
	})
	return g, unread(err)
}

// Release implements fence.Authority.
func (a *authority) Release(ctx context.Context, g fence.Grant) error {
	_, err := a.ask(ctx, "release", g.Tile, func(rows fence.Authority) (fence.Grant, error) {
		return fence.Grant{}, rows.Release(context.Background(), g)
	})
	return err
}

func (a *authority) ask(
	ctx context.Context, op string, tile fence.TileID, call func(fence.Authority) (fence.Grant, error),
) (fence.Grant, error) {
	type reply struct {
		grant fence.Grant
		err   error
	}
	got := &reply{}
	err := a.host.ask(ctx, op, tile, func() (bool, error) {
		r := &reply{} // of this delivery; a late one has its own
		err := a.registry.run(tile, func(rows fence.Authority) { r.grant, r.err = call(rows) })
		*got = *r
		return true, err
	})
	if err != nil {
		return fence.Grant{}, err
	}
	return got.grant, got.err
}
