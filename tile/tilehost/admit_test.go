package tilehost_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// However a tile would come to a host, the host's limit and its list hold.
func TestHostRunsOnlyWhatItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := tiles(10)
		mine, foreign := ids[:8], ids[8:]
		giver := w.host("giver:1", tilehost.Config{})
		require.NoError(t, giver.Own(ids...))
		require.NoError(t, giver.Await(t.Context(), ids...))
		h := w.host("h:1", tilehost.Config{Allow: tilehost.Only(mine...), MaxTiles: 3})
		offer := func(id fence.TileID) error {
			s, _ := giver.TileStatus(id)
			return h.Accept(t.Context(), tile.Handover{Tile: id, Epoch: s.Epoch, Position: s.Position, From: "giver:1",
				To: "h:1"})
		}
		for _, enter := range []func(fence.TileID) error{
			func(id fence.TileID) error { return h.Own(id) },
			func(id fence.TileID) error { return h.Own(mine[0], id) },
			func(id fence.TileID) error { return h.Follow(id) },
			h.TakeOver, offer,
		} {
			err := enter(foreign[0])
			argument, ok := errors.AsType[*fence.ArgumentError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, foreign[0], argument.Value)
			assert.Contains(t, argument.Want, "none of the 8")
			assert.Empty(t, h.Status())
		}
		require.ErrorIs(t, h.Own(mine[:4]...), tilehost.ErrFull, "all or none")
		assert.Empty(t, h.Status())
		require.NoError(t, h.Follow(mine[0], mine[0], mine[1], mine[2]))
		for _, enter := range []func(fence.TileID) error{
			func(id fence.TileID) error { return h.Own(id) },
			func(id fence.TileID) error { return h.Follow(id) },
			h.TakeOver, offer,
		} {
			err := enter(mine[3])
			require.ErrorIs(t, err, tilehost.ErrFull)
			require.ErrorIs(t, err, tile.ErrOverloaded)
		}
		time.Sleep(5 * time.Second)
		require.NoError(t, offer(mine[0]), "it has a part in it already")
		require.NoError(t, h.Own(mine[1]), "and it keeps it")
		require.NoError(t, h.Drain(t.Context(), mine[2], ""))
		require.NoError(t, offer(mine[3]), "there is room again")
		assert.Len(t, h.Status(), 3)
		giver.end(t)
		h.end(t)
	})
}

// A follower does not take a tile that the host may not run any more, and goes on following.
func TestHostTakesOverOnlyWhatItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &hostLine{w: w}
		a := w.hostAt("a:1", l.seams(), tilehost.Config{})
		require.NoError(t, a.Own(testTile))
		require.NoError(t, a.Await(t.Context(), testTile))
		var withdrawn atomic.Bool
		h := w.host("h:1", tilehost.Config{Allow: func(fence.TileID) error {
			if withdrawn.Load() {
				return errors.New("it was moved to another region")
			}
			return nil
		}})
		h.follow(t, []fence.TileID{testTile})
		withdrawn.Store(true)
		l.cut.Store(true)
		h.Suspect("a:1")
		time.Sleep(20 * time.Second)
		s, _ := h.TileStatus(testTile)
		assert.Equal(t, tile.Following, s.State)
		withdrawn.Store(false)
		time.Sleep(20 * time.Second)
		s, _ = h.TileStatus(testTile)
		assert.Equal(t, tile.Serving, s.State)
		a.end(t)
		h.end(t)
	})
}

// A hand-over of a tile that the store does not name as the giver's begins nothing.
func TestHostAcceptsOnlyWhatTheStoreSaysIsTheGivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, h := w.host("a:1", tilehost.Config{}), w.host("h:1", tilehost.Config{})
		require.NoError(t, a.Own(testTile))
		require.NoError(t, a.Await(t.Context(), testTile))
		for _, o := range []tile.Handover{
			{Tile: testTile + 1, Epoch: 1, From: "a:1"}, // it has no owner
			{Tile: testTile, Epoch: 1, From: "z:1"},
			{Tile: testTile, Epoch: fence.MaxNumber, From: "z:1"},
			{Tile: testTile, Epoch: 2, From: "a:1"},
		} {
			o.To = "h:1"
			require.ErrorIs(t, h.Accept(t.Context(), o), tile.ErrRedirect, "%+v", o)
			require.Empty(t, h.Status())
		}
		s, _ := a.TileStatus(testTile)
		assert.Equal(t, tile.Serving, s.State)
		require.NoError(t, a.Drain(t.Context(), testTile, ""))
		a.end(t)
		h.end(t)
	})
}

func TestCellsAreOfH3(t *testing.T) {
	assert.NoError(t, tilehost.Cells(0x85283083fffffff))
	for _, id := range []fence.TileID{0, 1, 42, 1<<64 - 1} {
		assert.Error(t, tilehost.Cells(id))
	}
}
