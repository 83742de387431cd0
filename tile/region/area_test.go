package region_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	h3 "github.com/uber/h3-go/v4"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

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
