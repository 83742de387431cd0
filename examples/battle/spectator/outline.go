package spectator

import (
	"math"

	"github.com/tilefence/tilefence/tile/region"
)

// A tile's cells do not fill the hexagon of the H3 cell they descend from: each resolution turns the
// lattice a little, and four of them make the rim a curve of some 490 corners. The outlines of
// neighbouring tiles fit into each other; the hexagons would cut through cells.

// lattice is the six steps from a cell to its neighbours, as averaged over a tile, by ascending angle.
type lattice [6]point

// latticeSteps averages the steps between adjacent cells. The directions come from the first cell that
// has six neighbours.
func latticeSteps(r *region.Region, centres []point) lattice {
	var first float64
	for i := range r.Len() {
		if near := r.Adjacent(i); len(near) == 6 {
			first = angle(centres[near[0]].minus(centres[i]))
			break
		}
	}
	var steps lattice
	var n [6]float64
	for i := range r.Len() {
		for _, j := range r.Adjacent(i) {
			step := centres[j].minus(centres[i])
			k := sector(angle(step) - first)
			steps[k] = steps[k].plus(step)
			n[k]++
		}
	}
	for k := range steps {
		steps[k] = steps[k].times(1 / max(n[k], 1))
	}
	return steps
}

func angle(p point) float64 { return math.Atan2(p.y, p.x) }

// sector is which of six directions, 60 degrees apart, is nearest to an angle.
func sector(a float64) int {
	k := int(math.Round(a/(math.Pi/3))) % 6
	return (k + 6) % 6
}

// corners are a cell's, relative to its centre: the k-th lies between the k-th step and the next.
func (l lattice) corners() [6]point {
	var c [6]point
	for k := range l {
		c[k] = l[k].plus(l[(k+1)%6]).times(1.0 / 3)
	}
	return c
}

// nearest is the direction of a step.
func (l lattice) nearest(step point) int {
	best := 0
	for k := range l {
		if l[k].dot(step)*l[best].length() > l[best].dot(step)*l[k].length() {
			best = k
		}
	}
	return best
}

// traceOutline walks around the union of a tile's cells and lists its corners. It returns nil for a
// ground that is no single lattice: around a pentagon the directions do not close.
func traceOutline(r *region.Region, centres []point, steps lattice) []point {
	at := make([][6]int, r.Len()) // per cell and direction: the neighbour plus one, or zero
	rim, side := -1, 0
	for i := range at {
		near := r.Adjacent(i)
		for _, j := range near {
			k := steps.nearest(centres[j].minus(centres[i]))
			if at[i][k] != 0 {
				return nil
			}
			at[i][k] = int(j) + 1
		}
	}
	for i := range at {
		for k, j := range at[i] {
			switch {
			case j == 0:
				rim, side = i, k
			case at[j-1][(k+3)%6] != i+1:
				return nil
			}
		}
	}
	if rim < 0 {
		return nil
	}
	corners := steps.corners()
	var outline []point
	// Each turn is at one side of one cell, beyond which nothing lies, and ends in the corner after it.
	// Either the cell's next side is open too, or the walk goes on along the neighbour there.
	for cell, k := rim, side; ; {
		outline = append(outline, centres[cell].plus(corners[k]))
		next := (k + 1) % 6
		if j := at[cell][next]; j != 0 {
			cell, k = j-1, (k+5)%6
		} else {
			k = next
		}
		if cell == rim && k == side {
			return outline
		}
		if len(outline) > 6*r.Len() {
			return nil
		}
	}
}
