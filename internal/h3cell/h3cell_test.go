//go:build cgo

package h3cell_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	h3 "github.com/uber/h3-go/v4"

	"github.com/tilefence/tilefence/internal/h3cell"
)

// TestCellsAreThoseOfH3 compares Valid with the library, over cells, over numbers one bit beside a cell, and over
// others.
func TestCellsAreThoseOfH3(t *testing.T) {
	cells, others := 0, 0
	agree := func(c h3.Cell) {
		valid := c.IsValid()
		if valid {
			cells++
		} else {
			others++
		}
		assert.Equal(t, valid, h3cell.Valid(uint64(c)), "%x", uint64(c))
		if valid {
			assert.Equal(t, c.Resolution(), h3cell.Resolution(uint64(c)))
		}
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	var all []h3.Cell
	for resolution := range 16 {
		pentagons, err := h3.Pentagons(resolution)
		require.NoError(t, err)
		all = append(all, pentagons...)
		for range 50 {
			c, err := h3.LatLngToCell(h3.NewLatLng(180*r.Float64()-90, 360*r.Float64()-180), resolution)
			require.NoError(t, err)
			all = append(all, c)
		}
	}
	for _, c := range all {
		agree(c)
		for bit := range 64 {
			agree(c ^ h3.Cell(uint64(1)<<bit))
		}
	}
	for range 10_000 {
		agree(h3.Cell(r.Uint64()))
		agree(h3.Cell(r.Uint64()&(1<<56-1) | 1<<59)) // of the right mode
	}
	assert.Positive(t, cells)
	assert.Positive(t, others)
}
