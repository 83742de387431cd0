package admission

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/lru"
	"github.com/tilefence/tilefence/tile"
)

// Router says where a tile's intents go. It may be wrong: the tile answers with a redirect then, which
// costs one round trip. Implementations are safe for concurrent use.
type Router interface {
	// Route names the contact of the tile's owner, as far as the router knows. A *RouteError when nobody is
	// known to own the tile, or nobody could be asked.
	Route(ctx context.Context, tile fence.TileID) (contact string, err error)

	// Correct tells the router that the process at contact wrong does not own r.Tile, or cannot be
	// reached. r names the owner, if the process knew one. The next Route of this tile must not answer
	// wrong again without having looked further than before (past a cache, say).
	Correct(wrong string, r *tile.RedirectError)
}

// OwnerReader reads a tile's owner hash. fence.Store is one.
type OwnerReader interface {
	Owner(ctx context.Context, tile fence.TileID) (fence.Owner, error)
}

// StoreRouterConfig holds the optional settings of a StoreRouter. Nil and the zero value are valid.
type StoreRouterConfig struct {
	// MaxTiles is how many tiles' owners are remembered. Zero means 65,536.
	MaxTiles int

	// MaxAge is how long an owner is believed without asking the store again. Zero means 5 s. Redirects
	// correct the router sooner than that.
	MaxAge time.Duration
}

// StoreRouter is a Router over the owner hashes of the coordination store, with a bounded memory of those
// it has read. A tile that moves is noticed by the redirect of its former owner, or after MaxAge. Safe for
// concurrent use.
type StoreRouter struct {
	store  OwnerReader
	maxAge time.Duration

	mu     sync.Mutex
	owners *lru.Map[fence.TileID, learned]
}

// learned is an owner, from the store or from a redirect.
type learned struct {
	contact string
	epoch   fence.Epoch
	at      time.Time
}

// NewStoreRouter returns a router over store. It does no I/O. Errors: a *fence.ArgumentError.
func NewStoreRouter(store OwnerReader, cfg *StoreRouterConfig) (*StoreRouter, error) {
	var c StoreRouterConfig
	if cfg != nil {
		c = *cfg
	}
	if c.MaxTiles == 0 {
		c.MaxTiles = 65536
	}
	if c.MaxAge == 0 {
		c.MaxAge = 5 * time.Second
	}
	switch {
	case store == nil:
		return nil, &fence.ArgumentError{Field: "store", Value: nil, Want: "a coordination store"}
	case c.MaxTiles < 0:
		return nil, &fence.ArgumentError{Field: "MaxTiles", Value: c.MaxTiles, Want: "at least 1, or zero for 65536"}
	case c.MaxAge < 0:
		return nil, &fence.ArgumentError{Field: "MaxAge", Value: c.MaxAge, Want: "a duration, or zero for 5s"}
	}
	return &StoreRouter{store: store, maxAge: c.MaxAge, owners: lru.New[fence.TileID, learned](c.MaxTiles)}, nil
}

// Route implements Router.
func (r *StoreRouter) Route(ctx context.Context, id fence.TileID) (string, error) {
	r.mu.Lock()
	known, ok := r.owners.Get(id)
	r.mu.Unlock()
	if ok && time.Since(known.at) < r.maxAge {
		return known.contact, nil
	}
	asked := time.Now()
	owner, err := r.store.Owner(ctx, id)
	if err != nil {
		return "", &RouteError{Tile: id, Err: err}
	}
	if !owner.Present() {
		return "", &RouteError{Tile: id}
	}
	r.learn(id, learned{contact: owner.Contact, epoch: owner.Epoch, at: asked})
	return owner.Contact, nil
}

// learn remembers an owner unless a later one is known.
func (r *StoreRouter) learn(id fence.TileID, l learned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.owners.Get(id); ok && known.epoch > l.epoch && time.Since(known.at) < r.maxAge {
		return
	}
	r.owners.Put(id, l)
}

// Correct implements Router.
func (r *StoreRouter) Correct(wrong string, e *tile.RedirectError) {
	r.mu.Lock()
	if known, ok := r.owners.Get(e.Tile); ok && known.contact == wrong {
		r.owners.Remove(e.Tile)
	}
	r.mu.Unlock()
	if e.Contact != "" && e.Contact != wrong && e.Epoch > 0 {
		r.learn(e.Tile, learned{contact: e.Contact, epoch: e.Epoch, at: time.Now()})
	}
}
