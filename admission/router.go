package admission

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

// Router says where a tile's intents go. route.Router is one. It may be wrong: the tile answers with a
// redirect then, which costs one round trip. Implementations are safe for concurrent use.
type Router interface {
	// Route names the contact of the tile's owner, as far as the router knows. A *route.NoRouteError when
	// nobody is known to own the tile, or nobody could be asked.
	Route(ctx context.Context, tile fence.TileID) (contact string, err error)

	// Correct tells the router that the process at contact wrong does not own now.Tile, or cannot be
	// reached. now is the owner that process named; its epoch is zero or its contact empty if it knew none.
	// The next Route of this tile must not answer wrong again without having looked further than before
	// (past a cache, say).
	Correct(wrong string, now route.Entry)
}
