// Package region gives tiles their geometry: a tile is an H3 cell, and its ground is the 2,401 cells
// (7^4) four resolutions finer that descend from it. A tile around one of the twelve pentagons of each
// resolution has 2,001. Nothing here assumes either number.
//
//	t, err := region.At(37.77, -122.42, 5) // the tile around a place, resolution 5
//	r, err := region.Of(t)
//	r.Cell(0)                              // the first cell of its ground, in H3 order
//	region.Disk(t, 1)                      // the tile and those around it
//	r.Area(0)                              // the area of its first cell; see fence.Area
//	r.Beyond()                             // the tiles around it, with the areas of theirs that touch it
//
// The package wraps the H3 library and needs cgo; nothing else in Tilefence does. A program that was built without it
// has Parent alone: Of, At and Disk return ErrNoCgo. A Region is immutable and safe for concurrent use.
package region

import (
	"cmp"
	"errors"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/h3cell"
)

// Depth is how many H3 resolutions lie between a tile and the cells of its ground.
const Depth = 4

// MaxResolution is the finest resolution a tile can have: H3 ends at 15.
const MaxResolution = 15 - Depth

// ErrNoCgo means: the program was built without cgo, and so without the H3 library, which is written in C. Cross builds
// are, unless they say otherwise. Build with CGO_ENABLED=1 and a C compiler for the target.
var ErrNoCgo = errors.New("package region has no H3: the program was built without cgo; " +
	"build it with CGO_ENABLED=1 and a C compiler")

// Cell is an H3 cell of a tile's ground.
type Cell uint64

// Point is a place in degrees.
type Point struct{ Lat, Lng float64 }

// Region is one tile's geometry.
type Region struct {
	id       fence.TileID
	cells    []Cell    // sorted
	adjacent [][]int32 // per cell, the indices of its neighbours inside the tile
	across   map[int][]Place
	areas    areas
}

// Place is a cell of some tile's ground.
type Place struct {
	Tile fence.TileID
	Cell int // its index in that tile
}

// Of computes a tile's geometry, about a millisecond of work. It returns a *fence.ArgumentError if t
// is not an H3 cell or is too fine to hold a ground.
func Of(t fence.TileID) (*Region, error) {
	cell, err := tileCell(t)
	if err != nil {
		return nil, err
	}
	children, err := cell.Children(cell.Resolution() + Depth)
	if err != nil {
		return nil, invalid(t, err.Error())
	}
	r := &Region{id: t, cells: make([]Cell, len(children)), across: map[int][]Place{}}
	for i, c := range children {
		r.cells[i] = Cell(c)
	}
	slices.Sort(r.cells)
	r.adjacent = make([][]int32, len(r.cells))
	for i, c := range r.cells {
		ring, err := h3Cell(c).GridDisk(1)
		if err != nil {
			return nil, invalid(t, err.Error())
		}
		for _, n := range ring {
			if j, ok := r.Index(Cell(n)); !ok {
				tile, _ := Parent(Cell(n))
				at, area, err := placeOf(n, cell.Resolution())
				if err != nil {
					return nil, invalid(t, err.Error())
				}
				r.across[i] = append(r.across[i], Place{tile, at})
				r.areas.beyond = append(r.areas.beyond, touch{cell: i, tile: tile, area: area})
			} else if j != i {
				r.adjacent[i] = append(r.adjacent[i], int32(j))
			}
		}
		slices.Sort(r.adjacent[i])
	}
	r.divide(cell.Resolution())
	return r, nil
}

// placeOf is where a cell is in its tile, which has a resolution: among the tile's children, which are in H3 order, and
// in which of its areas.
func placeOf(c h3Cell, resolution int) (at int, area fence.Area, err error) {
	if at, err = c.ChildPos(resolution); err != nil {
		return 0, 0, err
	}
	parent, err := c.Parent(resolution + AreaDepth)
	if err != nil {
		return 0, 0, err
	}
	n, err := parent.ChildPos(resolution)
	return at, fence.Area(n + 1), err
}

// At returns the tile that holds a place. The resolution is from 0 to MaxResolution.
func At(lat, lng float64, resolution int) (fence.TileID, error) {
	if resolution < 0 || resolution > MaxResolution {
		return 0, &fence.ArgumentError{Field: "resolution", Value: resolution, Want: "from 0 to 11"}
	}
	if !hasH3 {
		return 0, ErrNoCgo
	}
	c, err := latLngToCell(h3Point{Lat: lat, Lng: lng}, resolution)
	if err != nil {
		return 0, &fence.ArgumentError{Field: "place", Value: Point{lat, lng},
			Want: "a latitude and longitude in degrees: " + err.Error()}
	}
	return fence.TileID(c), nil
}

// Disk lists the tiles within k steps of t, t first, then ring by ring.
func Disk(t fence.TileID, k int) ([]fence.TileID, error) {
	cell, err := tileCell(t)
	if err != nil {
		return nil, err
	}
	if k < 0 || k > 100 {
		return nil, &fence.ArgumentError{Field: "k", Value: k, Want: "from 0 to 100 steps"}
	}
	rings, err := cell.GridDiskDistances(k)
	if err != nil {
		return nil, invalid(t, err.Error())
	}
	var tiles []fence.TileID
	for _, ring := range rings {
		from := len(tiles)
		for _, c := range ring {
			if c != 0 { // what is missing around a pentagon
				tiles = append(tiles, fence.TileID(c))
			}
		}
		slices.Sort(tiles[from:])
	}
	return tiles, nil
}

// ID returns the tile's index.
func (r *Region) ID() fence.TileID { return r.id }

// Len returns the number of cells of the ground.
func (r *Region) Len() int { return len(r.cells) }

// Cell returns the i-th cell of the ground, in ascending H3 order.
func (r *Region) Cell(i int) Cell { return r.cells[i] }

// Index returns the index of a cell; ok is false for a cell outside the tile.
func (r *Region) Index(c Cell) (i int, ok bool) { return slices.BinarySearch(r.cells, c) }

// Adjacent lists the indices of the cells of this tile that touch the i-th. The slice is shared: do not
// change it. At the tile's rim it is shorter than six.
func (r *Region) Adjacent(i int) []int32 { return r.adjacent[i] }

// Across lists the cells of other tiles that touch the i-th: none, but at the tile's rim. The slice is shared: do not
// change it.
func (r *Region) Across(i int) []Place { return r.across[i] }

// Center returns the center of the i-th cell.
func (r *Region) Center(i int) Point {
	// A cell of the ground is valid by construction, so H3 has no reason to refuse it.
	p, _ := h3Cell(r.cells[i]).LatLng()
	return Point{p.Lat, p.Lng}
}

// Outline walks around the ground: the corners of the union of its cells, which is no hexagon, since each resolution
// turns the lattice a little. The outlines of neighbouring tiles fit into each other.
func (r *Region) Outline() []Point {
	cells := make([]h3Cell, len(r.cells))
	for i, c := range r.cells {
		cells[i] = h3Cell(c)
	}
	polygons, _ := cellsToMultiPolygon(cells) // one piece without holes, of valid cells
	return points(polygons[0].GeoLoop)
}

// Corners returns the corners of the i-th cell.
func (r *Region) Corners(i int) []Point {
	b, _ := h3Cell(r.cells[i]).Boundary() // valid by construction, as above
	return points(b)
}

func points(places []h3Point) []Point {
	all := make([]Point, len(places))
	for i, p := range places {
		all[i] = Point{p.Lat, p.Lng}
	}
	return all
}

// Parent returns the tile that holds a cell of its ground. It masks bits and does not call the H3
// library, since servers ask it for every intent. ok is false for a cell too coarse to lie in a ground.
func Parent(c Cell) (t fence.TileID, ok bool) {
	res := uint64(c) >> resolutionShift & 0xf
	if res < Depth || !h3cell.Valid(uint64(c)) {
		return 0, false
	}
	return fence.TileID(ancestor(uint64(c), res-Depth)), true
}

// An H3 index holds its resolution in bits 52 to 55 and one three-bit digit a resolution, the coarsest
// highest; digits finer than the resolution are all ones.
const (
	resolutionShift = 52
	digitBits       = 3
	finest          = 15
)

func ancestor(c, res uint64) uint64 {
	c = c&^(0xf<<resolutionShift) | res<<resolutionShift
	return c | (1<<(digitBits*(finest-res)) - 1)
}

func tileCell(t fence.TileID) (h3Cell, error) {
	c := h3Cell(t)
	if !h3cell.Valid(uint64(t)) {
		return 0, invalid(t, "not an H3 cell")
	}
	if h3cell.Resolution(uint64(t)) > MaxResolution {
		return 0, invalid(t, "its resolution is over 11, so it has no cells four resolutions finer")
	}
	if !hasH3 {
		return 0, ErrNoCgo
	}
	return c, nil
}

func invalid(t fence.TileID, why string) error {
	return &fence.ArgumentError{Field: "tile", Value: t.String(),
		Want: "an H3 cell of resolution 0 to 11 (" + why + ")"}
}

// AreaDepth is how many H3 resolutions lie between a tile and its areas. With Depth 4 an area has 49 cells, and a
// tile 49 areas; around a pentagon a tile has 41, and the first of them 41 cells.
const AreaDepth = 2

// areas is how a ground is divided: the ancestors of its cells, in H3 order and so each a run of cells.
type areas struct {
	starts []int        // the first cell of each, and in the end the number of cells
	of     []fence.Area // per cell
	around [][]fence.Area
	beyond []touch // by tile, area and own
}

// touch is an area of another tile that touches an area of this one.
type touch struct {
	cell int // of this tile, until the areas are known; then zero
	own  fence.Area
	tile fence.TileID
	area fence.Area
}

func (r *Region) divide(resolution int) {
	var last uint64
	for i, c := range r.cells {
		if a := ancestor(uint64(c), uint64(resolution+AreaDepth)); a != last {
			r.areas.starts = append(r.areas.starts, i)
			last = a
		}
		r.areas.of = append(r.areas.of, fence.Area(len(r.areas.starts)))
	}
	r.areas.around = make([][]fence.Area, len(r.areas.starts))
	r.areas.starts = append(r.areas.starts, len(r.cells))
	for i := range r.cells {
		a := r.Area(i)
		around := &r.areas.around[a-1]
		for _, j := range r.adjacent[i] {
			if b := r.Area(int(j)); b != a && !slices.Contains(*around, b) {
				*around = append(*around, b)
			}
		}
	}
	for _, around := range r.areas.around {
		slices.Sort(around)
	}
	beyond := r.areas.beyond
	for i := range beyond {
		beyond[i].own, beyond[i].cell = r.Area(beyond[i].cell), 0
	}
	slices.SortFunc(beyond, func(a, b touch) int {
		return cmp.Or(cmp.Compare(a.tile, b.tile), cmp.Compare(a.area, b.area), cmp.Compare(a.own, b.own))
	})
	r.areas.beyond = slices.Compact(beyond)
}

// Areas returns the number of areas of the tile. They are numbered from 1, in H3 order.
func (r *Region) Areas() int { return len(r.areas.around) }

// Area returns the area of the i-th cell, from 1 to Areas.
func (r *Region) Area(i int) fence.Area { return r.areas.of[i] }

// Span returns the cells of an area from 1 to Areas: the indices from first up to, and without, end.
func (r *Region) Span(a fence.Area) (first, end int) { return r.areas.starts[a-1], r.areas.starts[a] }

// Around lists the areas of this tile that touch one from 1 to Areas, ascending: six, and fewer at the tile's rim or
// around a pentagon. The slice is shared: do not change it.
func (r *Region) Around(a fence.Area) []fence.Area { return r.areas.around[a-1] }

// Beyond lists the areas of other tiles that touch one of the given areas of this tile, by tile and ascending; without
// arguments, those that touch this tile anywhere: the rims of its neighbours. It is mutual: if an area is beyond
// another, that one is beyond it. The result is the caller's to change.
func (r *Region) Beyond(areas ...fence.Area) map[fence.TileID][]fence.Area {
	rims := map[fence.TileID][]fence.Area{}
	for _, t := range r.areas.beyond {
		if len(areas) > 0 && !slices.Contains(areas, t.own) {
			continue
		}
		if rim := rims[t.tile]; len(rim) == 0 || rim[len(rim)-1] != t.area {
			rims[t.tile] = append(rim, t.area)
		}
	}
	return rims
}
