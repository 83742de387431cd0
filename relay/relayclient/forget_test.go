package relayclient

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// A client that was shown an epoch which never was keeps its floor until relays have said for long enough that the
// store knows no such epoch; then it takes what there is.
func TestUnknownFloorIsForgotten(t *testing.T) {
	conn := Lost(t)
	synctest.Test(t, func(t *testing.T) {
		const id = fence.TileID(0x85283473fffffff)
		full, err := (&Config{BackoffMin: time.Hour, BackoffMax: time.Hour}).withDefaults()
		require.NoError(t, err)
		c := &Client{cfg: full, conn: conn, done: make(chan struct{}), tiles: map[fence.TileID]*tile{id: {id: id}}}
		c.ctx, c.cancel = context.WithCancelCause(context.Background())
		defer c.cancel(ErrClosed)
		sync := func(epoch fence.Epoch) {
			at := relaypb.FromPosition(fence.Position{Epoch: epoch, Seq: 5, Chain: 7})
			c.receive(conn, &relaypb.ServerMessage{Tile: id.String(), Body: &relaypb.ServerMessage_Sync{
				Sync: &relaypb.Sync{Replace: true, From: at, Position: at, Sum: fence.Checksum(nil)}}})
		}
		unknown := func() {
			c.receive(conn, &relaypb.ServerMessage{Tile: id.String(), Body: &relaypb.ServerMessage_Error{
				Error: &relaypb.Error{Code: relaypb.Code_CODE_UNKNOWN_EPOCH}}})
		}
		holds := func(want fence.Epoch) {
			at, _ := c.Position(id)
			require.Equal(t, want, at.Epoch)
		}
		sync(fence.MaxNumber)
		unknown()
		sync(3)
		holds(fence.MaxNumber)
		time.Sleep(forgetAfter - time.Second)
		unknown()
		sync(3)
		holds(fence.MaxNumber)
		time.Sleep(2 * time.Second)
		unknown()
		sync(3)
		holds(3)
		unknown() // late
		sync(2)
		holds(3)
		c.mu.Lock()
		c.tiles[id].rest()
		c.mu.Unlock()
	})
}
