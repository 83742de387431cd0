package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relayclient"
)

func TestHotPathInOrder(t *testing.T) {
	for _, json := range []bool{false, true} {
		w := newWorld(t)
		s := w.serve(still())
		o := w.claim(tileA, 1)
		o.tickOn(3)
		o.snapshot()
		o.tickOn(2)
		c := s.watch(t, func(c *relayclient.Config) { c.JSON = json }, tileA)
		c.reaches(o)
		o.tickOn(50)
		c.reaches(o)
		require.EqualValues(t, 0, c.Stats().Gaps)
		require.EqualValues(t, 1, c.Stats().Syncs, "everything after the first Sync came as frames")
		require.EqualValues(t, 50+2, c.Stats().Frames)
		require.EqualValues(t, 0, s.Stats().Gaps)
		require.EqualValues(t, 50, s.Stats().FramesIn)
	}
}

func TestUnknownTileComesToLife(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	c := s.watch(t, nil, tileA)
	eventually(t, func() bool { return c.Stats().Syncs == 1 }, "a Sync for a tile nobody owns")
	at, ok := c.Position(tileA)
	require.True(t, ok)
	require.Equal(t, fence.Position{}, at)

	o := &owner{w: w, tile: tileA, epoch: 1}
	o.publish(o.append(true))
	o.tickOn(4)
	c.reaches(o)
	require.EqualValues(t, 1, c.Stats().Syncs, "it came to life through frames")
}
