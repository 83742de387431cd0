//go:build !cgo

package region_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

// TestWithoutCgo: what needs H3 says what to do, and what does not works.
func TestWithoutCgo(t *testing.T) {
	const tile fence.TileID = 0x85283083fffffff
	_, err := region.Of(tile)
	require.ErrorIs(t, err, region.ErrNoCgo)
	require.ErrorContains(t, err, "CGO_ENABLED=1")
	_, err = region.At(37.77, -122.42, 5)
	require.ErrorIs(t, err, region.ErrNoCgo)
	_, err = region.Disk(tile, 1)
	require.ErrorIs(t, err, region.ErrNoCgo)
	got, ok := region.Parent(0x89283082803ffff)
	require.True(t, ok)
	assert.Equal(t, tile, got)
}
