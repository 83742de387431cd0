package region

import (
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// AreaDepth is how many H3 resolutions lie between a tile and its areas. With Depth 4 an area has 49 cells, and a
// tile 49 areas; around a pentagon a tile has 41, and the first of them 41 cells.
const AreaDepth = 2

// areas is how a ground is divided: the ancestors of its cells, in H3 order and so each a run of cells.
type areas struct {
	starts []int        // the first cell of each, and in the end the number of cells
	of     []fence.Area // per cell
	around [][]fence.Area
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
