package shard

import (
	"context"
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// Target works on tiles: a bridge.Bridge, or a checkpoint.Checkpointer through OneByOne. It is called with a
// lock held: it must not block, nor call its Share.
type Target interface {
	// Add begins to work on tiles; those it works on already are no error. After an error they are given
	// again.
	Add(tiles ...fence.TileID) error

	// Remove ceases to work on tiles; unknown ones are no error.
	Remove(tiles ...fence.TileID)
}

// OneByOne makes a Target of what takes one tile at a time, as checkpoint.Checkpointer does.
func OneByOne(of interface {
	Add(tile fence.TileID) error
	Remove(tile fence.TileID)
}) Target {
	return oneByOne{of}
}

type oneByOne struct {
	of interface {
		Add(tile fence.TileID) error
		Remove(tile fence.TileID)
	}
}

func (o oneByOne) Add(tiles ...fence.TileID) error {
	for _, t := range tiles {
		if err := o.of.Add(t); err != nil {
			return err
		}
	}
	return nil
}

func (o oneByOne) Remove(tiles ...fence.TileID) {
	for _, t := range tiles {
		o.of.Remove(t)
	}
}

// Lister lists the tiles there are from low up to and including high, in any order. What lies outside is
// ignored.
type Lister func(ctx context.Context, low, high fence.TileID) ([]fence.TileID, error)

// Fixed lists a fixed set of tiles.
func Fixed(tiles []fence.TileID) Lister {
	sorted := slices.Clone(tiles)
	slices.Sort(sorted)
	return func(_ context.Context, low, high fence.TileID) ([]fence.TileID, error) {
		first, _ := slices.BinarySearch(sorted, low)
		end, found := slices.BinarySearch(sorted, high)
		if found {
			end++
		}
		return sorted[first:end:end], nil
	}
}

// recordPage is how many records Recorded asks for at a time: few, because the last page of a shard goes
// past its end.
const recordPage = 1000

// Recorded lists the tiles of which the ownership authority has a record: those that were ever claimed and
// not retired since. It asks in pages of 1,000; a fence.Authority does.
func Recorded(authority interface {
	List(ctx context.Context, after fence.TileID, limit int) ([]fence.Grant, error)
}) Lister {
	return func(ctx context.Context, low, high fence.TileID) (tiles []fence.TileID, err error) {
		after := max(low, 1) - 1
		for {
			page, err := authority.List(ctx, after, recordPage)
			if err != nil {
				return nil, err
			}
			for _, g := range page {
				if g.Tile > high {
					return tiles, nil
				}
				tiles = append(tiles, g.Tile)
			}
			if len(page) < recordPage {
				return tiles, nil
			}
			after = page[len(page)-1].Tile
		}
	}
}
