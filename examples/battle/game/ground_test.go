package game_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

// areaCells is how many cells an area of a disk has; the last one may have fewer.
const areaCells = 7

// disk is a ground of all hexagons within a radius of the first: small enough to be crowded, and with
// coordinates, so that tests know distances without asking the code under test.
type disk struct {
	at   [][2]int
	near [][]int32

	across map[int][]region.Place
	id     fence.TileID
	others []fence.TileID
}

func newDisk(radius int) *disk {
	d := &disk{id: 7}
	index := map[[2]int]int32{}
	for q := -radius; q <= radius; q++ {
		for r := max(-radius, -q-radius); r <= min(radius, -q+radius); r++ {
			index[[2]int{q, r}] = int32(len(d.at))
			d.at = append(d.at, [2]int{q, r})
		}
	}
	for _, c := range d.at {
		var near []int32
		for _, s := range [][2]int{{1, 0}, {1, -1}, {0, -1}, {-1, 0}, {-1, 1}, {0, 1}} {
			if i, ok := index[[2]int{c[0] + s[0], c[1] + s[1]}]; ok {
				near = append(near, i)
			}
		}
		d.near = append(d.near, near)
	}
	return d
}

func (d *disk) Len() int               { return len(d.at) }
func (d *disk) Adjacent(i int) []int32 { return d.near[i] }

func (d *disk) ID() fence.TileID             { return d.id }
func (d *disk) Reaches(id fence.TileID) bool { return slices.Contains(d.others, id) }

func (d *disk) Across(i int) []region.Place { return d.across[i] }

func (d *disk) Area(i int) fence.Area { return fence.Area(1 + i/areaCells) }

func (d *disk) Span(a fence.Area) (first, end int) {
	return int(a-1) * areaCells, min(int(a)*areaCells, d.Len())
}

func (d *disk) Around(a fence.Area) (around []fence.Area) {
	for i, near := range d.near {
		for _, j := range near {
			if b := d.Area(int(j)); d.Area(i) == a && b != a && !slices.Contains(around, b) {
				around = append(around, b)
			}
		}
	}
	return around
}

func (d *disk) distance(a, b uint16) int {
	q, r := d.at[a][0]-d.at[b][0], d.at[a][1]-d.at[b][1]
	return max(abs(q), abs(r), abs(q+r))
}

func abs(n int) int { return max(n, -n) }

// realGround is the ground of an actual tile: 2,401 cells.
func realGround(t testing.TB) game.Ground {
	id, err := region.At(37.77, -122.42, 5)
	require.NoError(t, err)
	r, err := game.GroundOf(id, nil)
	require.NoError(t, err)
	return r
}
