package game

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/tile/region"
)

// MaxWorld is the tiles of the largest world: a disk of three rings.
const MaxWorld = 37

// World lists the tiles of a battle: adjacent ones, ring by ring around San Francisco. A number outside 1 to MaxWorld
// is a *fence.ArgumentError.
func World(tiles int) ([]fence.TileID, error) {
	if tiles < 1 || tiles > MaxWorld {
		return nil, &fence.ArgumentError{Field: "tiles", Value: tiles, Want: fmt.Sprintf("1 to %d", MaxWorld)}
	}
	middle, err := region.At(37.7752, -122.4186, 5)
	if err != nil {
		return nil, err
	}
	disk, err := region.Disk(middle, 3)
	if err != nil {
		return nil, err
	}
	return disk[:tiles], nil
}

// GroundOf is the ground of a tile. Ships may sail from it to the tiles of its world.
func GroundOf(id fence.TileID, world []fence.TileID) (Ground, error) {
	r, err := region.Of(id)
	return waters{r, world}, err
}

// waters is a region of a world.
type waters struct {
	*region.Region
	world []fence.TileID
}

// Across implements Ground.
func (w waters) Across(cell int) (open []region.Place) {
	for _, p := range w.Region.Across(cell) {
		if slices.Contains(w.world, p.Tile) {
			open = append(open, p)
		}
	}
	return open
}

// Reaches implements Ground.
func (w waters) Reaches(id fence.TileID) bool { return id != w.ID() && slices.Contains(w.world, id) }

// PlayerKeys are the keys of the tokens that say who a player is. They come from the secret of the actors, but tell
// nothing about it, nor about the keys by which the actors know each other.
func PlayerKeys(secret string) session.Keys {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("players of the battle"))
	return session.Keys{m.Sum(nil)}
}

// TokenLife is how long a token lasts. Clients renew their sessions before it ends.
const TokenLife = 10 * time.Minute
