package tile

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/history"
)

// Rules that have asked for room are not at fault when the other tile stops answering before they are done.
func TestABorderThatClosesMeanwhile(t *testing.T) {
	b := &border{base: &base{tile: 1, history: &history.History{}}, neighbors: map[fence.TileID]*neighbor{2: {}}}
	b.seams.Present = func(context.Context, Presentation) (Answer, error) { return Answer{}, nil }
	departs := []stream.Departure{{To: 2, Entity: "argo"}}
	require.Positive(t, b.room(2, 0))
	b.neighbors[2].failing = time.Now().Add(-time.Hour)
	require.Zero(t, b.room(2, 0))
	require.NoError(t, b.checkRoom(departs))
	require.Error(t, b.checkRoom(slices.Repeat(departs, transfer.Window+1)))
}
