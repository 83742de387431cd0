package admission

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

// Router finds the owner that takes a tile's intents. route.Router is one. It may be wrong: the tile answers with a
// redirect then, which costs one round trip. Implementations are safe for concurrent use.
type Router interface {
	// Route names the contact of the tile's owner, as far as the router knows. A *route.NoRouteError if
	// no owner is known, or no source could be asked.
	Route(ctx context.Context, tile fence.TileID) (contact string, err error)

	// Confirmed names the contact of the tile's owner according to the coordination store alone. Economic actions
	// are sent nowhere else. Errors as for Route.
	Confirmed(ctx context.Context, tile fence.TileID) (contact string, err error)

	// Correct reports to the router that the process at contact wrong does not own now.Tile, or cannot be
	// reached. now is the owner that process named; its epoch is zero or its contact empty if it knew none.
	// The next Route of this tile must not answer wrong again without having looked further than before
	// (past a cache, say), and the next Confirmed asks the store.
	Correct(wrong string, now route.Entry)
}
