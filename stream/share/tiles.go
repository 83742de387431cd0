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

// Lister lists the tiles that are to be worked on, by any member, part by part. last is the part that it returned last
// to the same Share, the zero Part at first. Each call may take 10 s.
type Lister func(ctx context.Context, last Part) (Part, error)

// Part is a part of a list.
type Part struct {
	Tiles []fence.TileID // to be worked on, in any order; a tile may be in many parts

	// All says that the parts since the one before that had All, this one included, have all tiles there are. What was
	// in none of them is gone.
	All bool
	// More asks for the next part at once, not in 10 s.
	More bool

	Place any // for the Lister alone: where it goes on
}

// Fixed lists a fixed set of tiles.
func Fixed(tiles []fence.TileID) Lister {
	tiles = slices.Clone(tiles)
	return func(context.Context, Part) (Part, error) { return Part{Tiles: tiles, All: true}, nil }
}

// Recorded lists the tiles of which the authority has a record: those that were ever claimed and not retired since. It
// reads all records once, and then those that were added; and a page of all records with each part, so that it finds
// what was retired too. Whatever the number of tiles, a part is two pages of 10,000 at most.
func Recorded(authority fence.Authority) Lister {
	return func(ctx context.Context, last Part) (Part, error) {
		at, _ := last.Place.(recordedPlace)
		return at.next(ctx, authority)
	}
}

// recordedPlace is where Recorded goes on.
type recordedPlace struct {
	since fence.Bookmark // what was added from here on; empty: nothing was listed yet
	after fence.TileID   // of all records, those of the tiles after this one
	whole bool           // all records were read once since
}

func (at recordedPlace) next(ctx context.Context, authority fence.Authority) (part Part, err error) {
	added, since, err := authority.Added(ctx, at.since, fence.MaxList)
	if err != nil {
		return Part{}, err
	}
	if at.since != "" && since == "" { // the authority was restored to an older state
		return Part{More: true}, nil
	}
	if at.since = since; len(added) < fence.MaxList {
		page, err := authority.List(ctx, at.after, fence.MaxList)
		if err != nil {
			return Part{}, err
		}
		at.after = 0
		if part.All = len(page) < fence.MaxList; !part.All {
			at.after = page[len(page)-1].Tile
		}
		at.whole = at.whole || part.All
		added = append(added, page...)
		part.More = !at.whole
	} else {
		part.More = true
	}
	for _, g := range added {
		part.Tiles = append(part.Tiles, g.Tile)
	}
	part.Place = at
	return part, nil
}

const (
	// absences is how many lists in a row must lack a tile, and no hint name it, before it is given up.
	absences = 2

	// maxUnlisted is how many tiles are known from hints alone at most, so that hints cannot make a process grow.
	maxUnlisted = 10_000
)

// tiles are the tiles that a member knows of.
type tiles struct {
	list   int                   // the number of the list under way
	seen   map[fence.TileID]int  // the last list that had the tile, or the one before the hint that named it
	listed int                   // tiles of the last list
	now    int                   // tiles of the list under way, so far
	held   map[fence.TileID]bool // the target works on them
}

func newTiles() tiles {
	return tiles{list: absences, seen: map[fence.TileID]int{}, held: map[fence.TileID]bool{}}
}

// enter enters a part of a list, and returns the tiles that were not known, and those that are gone.
func (s *tiles) enter(part *Part) (fresh, gone []fence.TileID) {
	for _, t := range part.Tiles {
		last, known := s.seen[t]
		switch {
		case t == 0: // no tile
			continue
		case !known:
			fresh = append(fresh, t)
		}
		if !known || last != s.list {
			s.now++
		}
		s.seen[t] = s.list
	}
	if !part.All {
		return fresh, nil
	}
	for t, last := range s.seen {
		if s.list-last >= absences {
			delete(s.seen, t)
			gone = append(gone, t)
		}
	}
	s.listed, s.now = s.now, 0
	s.list++
	return fresh, gone
}

// hint enters a tile from a hint. It is false if there is no room for it.
func (s *tiles) hint(t fence.TileID) bool {
	last, known := s.seen[t]
	if !known && len(s.seen) >= max(s.listed, s.now)+maxUnlisted {
		return false
	}
	s.seen[t] = max(last, s.list-1)
	return true
}

// changes returns the tiles that the target lacks, and those it is to work on no longer. It looks at every tile.
func (s *tiles) changes(mine func(fence.TileID) bool) (add, remove []fence.TileID) {
	for t := range s.held {
		if _, known := s.seen[t]; !known || !mine(t) {
			remove = append(remove, t)
		}
	}
	for t := range s.seen {
		if !s.held[t] && mine(t) {
			add = append(add, t)
		}
	}
	return add, remove
}
