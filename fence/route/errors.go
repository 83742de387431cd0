package route

import (
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// ErrNoRoute: no source names an owner of the tile. A *NoRouteError says more.
var ErrNoRoute = errors.New("no route to the tile")

// NoRouteError is a tile whose owner could not be named. Try again: a tile that lost its owner gets
// another, and a store that is down comes back.
type NoRouteError struct {
	Tile fence.TileID
	Err  error // nil: every source was asked, and none names an owner
}

func (e *NoRouteError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("tile %s: %v: it has no owner just now", e.Tile, ErrNoRoute)
	}
	return fmt.Sprintf("tile %s: %v: %v", e.Tile, ErrNoRoute, e.Err)
}

// Is matches ErrNoRoute.
func (e *NoRouteError) Is(target error) bool { return target == ErrNoRoute }

// Unwrap gives the cause.
func (e *NoRouteError) Unwrap() error { return e.Err }
