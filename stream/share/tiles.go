package share

import (
	"context"
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// Target works on tiles: a bridge.Bridge or a checkpoint.Checkpointer. It is called with a lock held: it must not
// block, nor call its Share.
type Target interface {
	// Add begins to work on tiles. Tiles it works on already are no error. After an error they are given again.
	Add(tiles ...fence.TileID) error

	// Remove ceases to work on tiles. Unknown tiles are no error.
	Remove(tiles ...fence.TileID)
}

// Lister lists all tiles that are to be worked on, by any member, in any order.
type Lister func(ctx context.Context) ([]fence.TileID, error)

// Fixed lists a fixed set of tiles.
func Fixed(tiles []fence.TileID) Lister {
	tiles = slices.Clone(tiles)
	return func(context.Context) ([]fence.TileID, error) { return tiles, nil }
}

// Recorded lists the tiles of which the authority has a record: those that were ever claimed and not retired since.
func Recorded(authority fence.Authority) Lister {
	return func(ctx context.Context) (tiles []fence.TileID, err error) {
		for g, err := range fence.Records(ctx, authority) {
			if err != nil {
				return nil, err
			}
			tiles = append(tiles, g.Tile)
		}
		return tiles, nil
	}
}

const (
	// absences is how many lists in a row must lack a tile, and no hint name it, before it is given up.
	absences = 2

	// maxUnlisted is how many tiles are known from hints alone at most, so that hints cannot make a process grow.
	maxUnlisted = 10_000
)

// tiles are the tiles that a member knows of.
type tiles struct {
	absent map[fence.TileID]int  // lists in a row that lacked the tile, without a hint
	listed int                   // tiles of the last list
	held   map[fence.TileID]bool // the target works on them
}

func newTiles() tiles { return tiles{absent: map[fence.TileID]int{}, held: map[fence.TileID]bool{}} }

// list enters a list of all tiles.
func (s *tiles) list(list []fence.TileID) {
	for t, n := range s.absent {
		if s.absent[t]++; n+1 >= absences {
			delete(s.absent, t)
		}
	}
	for _, t := range list {
		s.absent[t] = 0
	}
	delete(s.absent, 0) // no tile
	s.listed = len(list)
}

// hint enters a tile from a hint. It is false if there is no room for it.
func (s *tiles) hint(t fence.TileID) bool {
	if _, known := s.absent[t]; !known && len(s.absent) >= s.listed+maxUnlisted {
		return false
	}
	s.absent[t] = 0
	return true
}

// changes returns the tiles that the target lacks, and those it is to work on no longer.
func (s *tiles) changes(mine func(fence.TileID) bool) (add, remove []fence.TileID) {
	for t := range s.held {
		if _, known := s.absent[t]; !known || !mine(t) {
			remove = append(remove, t)
		}
	}
	for t := range s.absent {
		if !s.held[t] && mine(t) {
			add = append(add, t)
		}
	}
	return add, remove
}
