package relay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// tailLen is how many batches the relay keeps of a tile, and whether it can sync a new client from them.
func (s *server) tailLen(tile fence.TileID) (n int, whole bool) {
	h := s.hubs.open(tile, "")
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.view.tail), h.view.whole
}

func TestNewClientsAreServedFromMemory(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.snapshot()
	first := s.watch(t, nil, tileA)
	first.reaches(o)
	w.log.set(func(l *testLog) { l.err = errDown })
	for range 5 {
		o.tickOn(10)
		c := s.watch(t, nil, tileA)
		c.reaches(o)
	}
	require.EqualValues(t, 1, w.log.snapshots.Load())
}

func TestLongTailIsShortenedByANewerSnapshot(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.refreshFrames = 20
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	for range 10 {
		o.tickOn(5)
		o.snapshot()
		o.tickOn(5)
		c.reaches(o)
	}
	eventually(t, func() bool { n, whole := s.tailLen(tileA); return whole && n < 30 }, "the tail is kept short")
	late := s.watch(t, nil, tileA)
	late.reaches(o)
	require.EqualValues(t, 1, c.Stats().Syncs)
}

func TestOvergrownCacheIsDroppedAndReadAgain(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.TailFrames = 10
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	o.tickOn(40) // no newer snapshot ever comes
	c.reaches(o)
	n, whole := s.tailLen(tileA)
	require.False(t, whole)
	require.LessOrEqual(t, n, 10)
	before := w.log.snapshots.Load()
	late := s.watch(t, nil, tileA)
	late.reaches(o)
	require.Greater(t, w.log.snapshots.Load(), before)
	o.tickOn(3)
	late.reaches(o)
	c.reaches(o)
	require.EqualValues(t, 1, c.Stats().Syncs, "those who are up to date notice nothing")
}

func TestUnwatchedTileIsDropped(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.linger = 30 * time.Millisecond
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	require.Equal(t, 1, w.fan.count(tileA))
	require.NoError(t, c.Unsubscribe(context.Background(), tileA))
	eventually(t, func() bool { return s.Stats().Tiles == 0 && w.fan.count(tileA) == 0 }, "hub and subscription go")
	o.tickOn(2)
	require.NoError(t, c.Subscribe(context.Background(), tileA))
	c.reaches(o)
}

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
