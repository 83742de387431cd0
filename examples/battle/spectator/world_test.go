package spectator_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

// flower is a tile and its six neighbours around a place.
func flower(t testing.TB, lat, lng float64) []fence.TileID {
	middle, err := region.At(lat, lng, 5)
	require.NoError(t, err)
	tiles, err := region.Disk(middle, 1)
	require.NoError(t, err)
	return tiles
}

func newWorld(t testing.TB, tiles ...fence.TileID) spectator.World {
	w, err := spectator.NewWorld("/view", 500*time.Millisecond, tiles...)
	require.NoError(t, err)
	return w
}

func TestCellsLieInsideTheirOutlineAndNoOther(t *testing.T) {
	for _, place := range [][2]float64{{37.77, -122.42}, {-33.9, 18.4}, {64.1, -21.9}, {0.1, 179.99}, {89.5, 10}} {
		w := newWorld(t, flower(t, place[0], place[1])...)
		require.Len(t, w.Tiles, 7)
		for _, g := range w.Tiles {
			require.Len(t, g.Cells, 2*2401)
			assert.InDelta(t, 490, len(g.Outline)/2, 30, "corners of a rim of 2,401 hexagons")
			for _, other := range w.Tiles {
				step := 2
				if other.Tile != g.Tile {
					step = 32 // of the others' outlines a sample will do
				}
				wrong := 0
				for i := 0; i < len(g.Cells); i += step {
					if inside(other.Outline, g.Cells[i], g.Cells[i+1]) != (other.Tile == g.Tile) {
						wrong++
					}
				}
				require.Zero(t, wrong, "cells of tile %s and the outline of %s near %v", g.Tile, other.Tile, place)
			}
		}
	}
}

// inside counts the edges that a ray to the right of the point crosses.
func inside(polygon []int, x, y int) bool {
	in := false
	for i, j := 0, len(polygon)-2; i < len(polygon); i, j = i+2, i {
		xi, yi, xj, yj := polygon[i], polygon[i+1], polygon[j], polygon[j+1]
		if (yi > y) != (yj > y) && float64(x) < float64(xj-xi)*float64(y-yi)/float64(yj-yi)+float64(xi) {
			in = !in
		}
	}
	return in
}

func TestCellsAreAPitchApart(t *testing.T) {
	tiles := flower(t, 37.77, -122.42)
	w := newWorld(t, tiles...)
	assert.Equal(t, spectator.Pitch, w.Pitch)
	for n, g := range w.Tiles {
		r, err := region.Of(tiles[n])
		require.NoError(t, err)
		for i := range r.Len() {
			for _, j := range r.Adjacent(i) {
				d := math.Hypot(float64(g.Cells[2*i]-g.Cells[2*j]), float64(g.Cells[2*i+1]-g.Cells[2*j+1]))
				require.InDelta(t, spectator.Pitch, d, spectator.Pitch/4)
			}
		}
		require.Len(t, g.Corners, 12)
		for i := 0; i < 12; i += 2 {
			require.InDelta(t, spectator.Pitch/math.Sqrt(3), math.Hypot(float64(g.Corners[i]),
				float64(g.Corners[i+1])), spectator.Pitch/4)
		}
	}
}

func TestNorthIsUp(t *testing.T) {
	south, err := region.At(37, -122, 5)
	require.NoError(t, err)
	north, err := region.At(37.5, -122, 5)
	require.NoError(t, err)
	east, err := region.At(37, -121.5, 5)
	require.NoError(t, err)
	w := newWorld(t, south, north, east)
	assert.Less(t, w.Tiles[1].Cells[1], w.Tiles[0].Cells[1])
	assert.Greater(t, w.Tiles[2].Cells[0], w.Tiles[0].Cells[0])
}

func TestPentagonHasAnOutlineToo(t *testing.T) {
	const pentagon fence.TileID = 0x85080003fffffff
	w := newWorld(t, pentagon)
	assert.Len(t, w.Tiles[0].Cells, 2*2001)
	assert.GreaterOrEqual(t, len(w.Tiles[0].Outline), 2*5)
}

func TestWorldRefusesWhatCannotBeDrawn(t *testing.T) {
	tiles := flower(t, 37.77, -122.42)
	for name, f := range map[string]func() (spectator.World, error){
		"no relay":  func() (spectator.World, error) { return spectator.NewWorld("", time.Second, tiles...) },
		"no tick":   func() (spectator.World, error) { return spectator.NewWorld("/view", 0, tiles...) },
		"no tiles":  func() (spectator.World, error) { return spectator.NewWorld("/view", time.Second) },
		"no ground": func() (spectator.World, error) { return spectator.NewWorld("/view", time.Second, 1) },
	} {
		_, err := f()
		assert.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
}

func TestWorldAsJSON(t *testing.T) {
	data, err := json.Marshal(newWorld(t, flower(t, 37.77, -122.42)...))
	require.NoError(t, err)
	t.Logf("%d bytes for seven tiles", len(data))
	assert.Less(t, len(data), 350_000)
	var w map[string]any
	require.NoError(t, json.Unmarshal(data, &w))
	assert.Equal(t, "/view", w["relay"])
	assert.Equal(t, 500.0, w["tickMs"])
	assert.Equal(t, "85283083fffffff", w["tiles"].([]any)[0].(map[string]any)["tile"])
}
