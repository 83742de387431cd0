package game

import (
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

// The game's constants. Points are whole numbers; ticks are the tile's.
const (
	MaxHull      = 100 // points of a ship that has just spawned or returned
	MaxShield    = 80  // points a shield can hold
	ShieldCharge = 40  // points one Shield card adds
	VolleyDamage = 35  // points one Volley card takes, from the shield first
	VolleyRange  = 6   // steps over the ground, at most, from attacker to target
	ReturnTicks  = 8   // ticks a destroyed ship stays away: 4 s at two ticks a second

	// MaxOwner is the bytes of an owner's name: with a tile's it makes a ship's, which stream.MaxEntity bounds.
	MaxOwner = 47

	maxCells = 1<<16 - 1 // cells of a ground: cells and ships are counted in 16 bits
)

// Ground is what the game needs to know of a tile's geometry: see GroundOf. Cells are the numbers from 0 to
// Len()-1, areas those from 1 to Area(Len()-1), and an area is a run of cells. Adjacency is mutual. Nothing of it
// ever changes, and the caller changes no slice.
type Ground interface {
	ID() fence.TileID // of the tile
	Len() int
	Adjacent(cell int) []int32             // the cells that touch a cell
	Area(cell int) fence.Area              // the area of a cell
	Span(area fence.Area) (first, end int) // the cells of an area: from first up to, and without, end
	Around(area fence.Area) []fence.Area   // the areas that touch an area
	Across(cell int) []region.Place        // the cells of other tiles that touch a cell, and that a ship may sail to
	Reaches(id fence.TileID) bool          // whether fleets warp to another tile, and ships of it come along
}

// Ship is one actor's ship. An actor has at most one in a tile, and keeps it: a destroyed ship returns. It is in the
// area of its cell.
type Ship struct {
	ID     uint32 // in its tile: the lowest that was free when it came
	Owner  string // the actor, 1 to 64 bytes
	Cell   uint16 // where it is or, destroyed, where it was
	Hull   uint8  // points; zero is destroyed
	Shield uint8  // points
	Score  uint32 // ships it has destroyed

	Home fence.TileID // where it has spawned
	Hop  uint32       // how often it has left a tile

	// Back is the first tick at which a destroyed ship may return; zero for a ship in play.
	Back fence.Tick
}

// Name is the ship's in the world, where an owner may have one of each tile.
func (s *Ship) Name() string { return s.Owner + "@" + s.Home.String() }

// ownerOf is the owner of the ship of a name.
func ownerOf(name string) (owner string, ok bool) {
	i := strings.LastIndexByte(name, '@')
	return name[:max(i, 0)], i >= 0
}

// InPlay reports whether the ship is on the ground: not destroyed.
func (s *Ship) InPlay() bool { return s.Hull > 0 }
