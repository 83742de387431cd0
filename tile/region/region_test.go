//go:build cgo

package region_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	h3 "github.com/uber/h3-go/v4"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

func TestGroundOfHexagonAndPentagon(t *testing.T) {
	pentagons, err := h3.Pentagons(5)
	require.NoError(t, err)
	hexagon, err := region.At(37.7752, -122.4186, 5)
	require.NoError(t, err)
	for _, c := range []struct {
		tile              fence.TileID
		cells, neighbours int
	}{{hexagon, 2401, 6}, {fence.TileID(pentagons[3]), 2001, 5}} {
		r, err := region.Of(c.tile)
		require.NoError(t, err)
		assert.Equal(t, c.cells, r.Len())
		disk, err := region.Disk(c.tile, 1)
		require.NoError(t, err)
		assert.Len(t, disk, 1+c.neighbours)
		for i := range r.Len() {
			parent, err := h3.Cell(r.Cell(i)).Parent(5)
			require.NoError(t, err)
			got, ok := region.Parent(r.Cell(i))
			require.True(t, ok)
			assert.Equal(t, fence.TileID(parent), got)
			for _, j := range r.Adjacent(i) {
				assert.Contains(t, r.Adjacent(int(j)), int32(i), "adjacency is mutual")
			}
		}
	}
}

// TestAcross: what touches a cell is inside its tile or across a border, where the other tile says the same, and so it
// is with areas: around all twelve pentagons of every resolution that a tile can have, and along the edges of H3's
// icosahedron.
func TestAcross(t *testing.T) {
	for resolution := range region.MaxResolution + 1 {
		pentagons, err := h3.Pentagons(resolution)
		require.NoError(t, err)
		require.Len(t, pentagons, 12)
		for i, id := range append(pentagons, onEdges(t, resolution)...) {
			// Of one pentagon of each resolution, each of them once, and at the edges, neighbours are compared as well.
			checkAcross(t, fence.TileID(id), i == resolution || i >= len(pentagons))
		}
	}
}

// onEdges are three tiles that lie on edges of the icosahedron: between two places on different faces, the edge is
// found by halving.
func onEdges(t *testing.T, resolution int) (tiles []h3.Cell) {
	t.Helper()
	for _, places := range [][2]region.Point{{{60, 10}, {5, 10}}, {{30, -150}, {30, -60}}, {{-70, 100}, {0, 100}}} {
		cellAt := func(part float64, resolution int) h3.Cell {
			from, to := places[0], places[1]
			c, err := h3.LatLngToCell(h3.NewLatLng(from.Lat+part*(to.Lat-from.Lat), from.Lng+part*(to.Lng-from.Lng)),
				resolution)
			require.NoError(t, err)
			return c
		}
		facesOf := func(c h3.Cell) []int {
			faces, err := c.IcosahedronFaces()
			require.NoError(t, err)
			return faces
		}
		near, far := 0.0, 1.0
		for range 40 {
			if middle := (near + far) / 2; facesOf(cellAt(middle, 15))[0] == facesOf(cellAt(0, 15))[0] {
				near = middle
			} else {
				far = middle
			}
		}
		tiles = append(tiles, cellAt(near, resolution)) // the edge runs through it
	}
	return tiles
}

func checkAcross(t *testing.T, id fence.TileID, whole bool) {
	t.Helper()
	r, err := region.Of(id)
	require.NoError(t, err)
	disk, err := region.Disk(id, 1)
	require.NoError(t, err)
	others := map[fence.TileID]*region.Region{}
	for _, other := range disk[1:] {
		if whole {
			others[other], err = region.Of(other)
			require.NoError(t, err)
		}
	}
	met := map[fence.TileID]bool{}
	rims := map[fence.Area]map[fence.TileID][]fence.Area{} // by area of this tile, as its cells say
	for i := range r.Len() {
		ring, err := h3.Cell(r.Cell(i)).GridDisk(1)
		require.NoError(t, err)
		if len(ring)-1 != len(r.Adjacent(i))+len(r.Across(i)) {
			t.Fatalf("cell %d of %s has %d around it", i, id, len(ring)-1)
		}
		for _, p := range r.Across(i) {
			met[p.Tile] = true
			other := others[p.Tile]
			if other == nil {
				continue
			}
			require.True(t, slices.Contains(ring, h3.Cell(other.Cell(p.Cell))))
			require.True(t, slices.Contains(other.Across(p.Cell), region.Place{Tile: id, Cell: i}))
			own, area := r.Area(i), other.Area(p.Cell)
			require.True(t, slices.Contains(r.Beyond(own)[p.Tile], area))
			require.True(t, slices.Contains(other.Beyond(area)[id], own))
			if rims[own] == nil {
				rims[own] = map[fence.TileID][]fence.Area{}
			}
			if !slices.Contains(rims[own][p.Tile], area) {
				rims[own][p.Tile] = append(rims[own][p.Tile], area)
			}
		}
	}
	assert.Len(t, met, len(disk)-1)
	assert.Len(t, r.Beyond(), len(disk)-1)
	for a := fence.Area(1); int(a) <= r.Areas(); a++ {
		for other, areas := range r.Beyond(a) {
			require.Contains(t, disk[1:], other)
			require.IsIncreasing(t, append([]fence.Area{0}, areas...))
			if others[other] != nil {
				require.ElementsMatch(t, rims[a][other], areas, "area %d of %s", a, id)
			}
			require.Subset(t, r.Beyond()[other], areas)
		}
	}
}

func TestParentAgreesWithH3AtEveryResolution(t *testing.T) {
	for res := region.Depth; res <= 15; res++ {
		for lat := -88.0; lat < 90; lat += 7.3 {
			for lng := -180.0; lng < 180; lng += 11.7 {
				c, err := h3.LatLngToCell(h3.NewLatLng(lat, lng), res)
				require.NoError(t, err)
				want, err := c.Parent(res - region.Depth)
				require.NoError(t, err)
				got, ok := region.Parent(region.Cell(c))
				require.True(t, ok)
				require.Equal(t, fence.TileID(want), got)
			}
		}
	}
	_, ok := region.Parent(region.Cell(0x8009fffffffffff))
	assert.False(t, ok, "a base cell has no tile above it")
	_, ok = region.Parent(12345)
	assert.False(t, ok)
}

func TestBadTiles(t *testing.T) {
	for _, id := range []fence.TileID{0, 1, 1 << 63, 0x8f283473fffffff, fence.TileID(0x8c2834700000000)} {
		_, err := region.Of(id)
		assert.ErrorIs(t, err, fence.ErrInvalidArgument, "%s", id)
		_, err = region.Disk(id, 1)
		assert.ErrorIs(t, err, fence.ErrInvalidArgument, "%s", id)
	}
	_, err := region.At(0, 0, 12)
	assert.ErrorIs(t, err, fence.ErrInvalidArgument)
}

func TestDiskStartsAtItsOrigin(t *testing.T) {
	id, err := region.At(37.7752, -122.4186, 5)
	require.NoError(t, err)
	disk, err := region.Disk(id, 2)
	require.NoError(t, err)
	assert.Len(t, disk, 19)
	assert.Equal(t, id, disk[0])
}

func Example() {
	id, err := region.At(37.7752, -122.4186, 5)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := region.Of(id)
	if err != nil {
		fmt.Println(err)
		return
	}
	parent, _ := region.Parent(r.Cell(0))
	fmt.Println(id, r.Len(), r.Areas(), parent == id)
	// Output: 85283083fffffff 2401 49 true
}

func BenchmarkParent(b *testing.B) {
	id, _ := region.At(37.7752, -122.4186, 5)
	r, err := region.Of(id)
	require.NoError(b, err)
	b.Run("tilefence", func(b *testing.B) {
		for i := range b.N {
			region.Parent(r.Cell(i % r.Len()))
		}
	})
	b.Run("h3", func(b *testing.B) {
		for i := range b.N {
			_, _ = h3.Cell(r.Cell(i % r.Len())).Parent(5)
		}
	})
}

// TestAreas: areas are the children of the tile two resolutions finer, in H3 order, and those that touch know it.
func TestAreas(t *testing.T) {
	pentagons, err := h3.Pentagons(5)
	require.NoError(t, err)
	hexagon, err := region.At(37.7752, -122.4186, 5)
	require.NoError(t, err)
	coarse, err := region.At(10, 10, 0)
	require.NoError(t, err)
	for _, c := range []struct {
		tile                     fence.TileID
		areas, first, most, rims int
	}{{hexagon, 49, 49, 6, 6}, {coarse, 49, 49, 6, 6}, {fence.TileID(pentagons[3]), 41, 41, 6, 5}} {
		r, err := region.Of(c.tile)
		require.NoError(t, err)
		require.Equal(t, c.areas, r.Areas())
		parents, next := map[h3.Cell]fence.Area{}, 0
		for a := fence.Area(1); int(a) <= r.Areas(); a++ {
			first, end := r.Span(a)
			require.Equal(t, next, first, "areas follow each other")
			next = end
			if a == 1 {
				require.Equal(t, c.first, end-first)
			} else {
				require.Equal(t, 49, end-first)
			}
			for i := first; i < end; i++ {
				require.Equal(t, a, r.Area(i))
				parent, err := h3.Cell(r.Cell(i)).Parent(h3.Cell(c.tile).Resolution() + region.AreaDepth)
				require.NoError(t, err)
				if i == first {
					require.Zero(t, parents[parent])
					parents[parent] = a
				}
				require.Equal(t, a, parents[parent])
			}
		}
		require.Equal(t, r.Len(), next)
		for parent, a := range parents {
			disk, err := parent.GridDisk(1)
			require.NoError(t, err)
			var want []fence.Area
			for _, n := range disk {
				if b := parents[n]; b != 0 && b != a {
					want = append(want, b)
				}
			}
			assert.ElementsMatch(t, want, r.Around(a), "area %d of tile %s", a, c.tile)
			assert.IsIncreasing(t, append([]fence.Area{0}, r.Around(a)...))
			assert.LessOrEqual(t, len(r.Around(a)), c.most)
		}
		assert.Len(t, r.Around(1), c.rims, "the middle")
	}
}
