package relay

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// TestPreparedFramesAreWebSocketFrames lets the WebSocket library read what the relay framed itself, at
// every length of header.
func TestPreparedFramesAreWebSocketFrames(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	c := s.raw(t, relaypb.Subprotocol)
	eventually(t, func() bool { return s.Stats().Clients == 1 }, "connected")
	peer := s.allClients()[0]
	for _, n := range []int{0, 1, 100, 125, 126, 127, 1000, 65535, 65536, 65537, 200_000} {
		payload := bytes.Repeat([]byte{'x'}, n)
		peer.force(socket.Frame(socket.OpBinary, payload))
		peer.force(socket.Frame(socket.OpText, payload))
		for _, want := range []websocket.MessageType{websocket.MessageBinary, websocket.MessageText} {
			kind, got, err := c.Read(context.Background())
			require.NoError(t, err)
			require.Equal(t, want, kind)
			require.True(t, bytes.Equal(payload, got), n)
		}
	}
}

// TestFrameOverhead holds the protocol to its budget: 600 bytes per client and tick leave more than 500
// for the game.
func TestFrameOverhead(t *testing.T) {
	p := fence.Position{Epoch: 1 << 20, Seq: 1 << 40, Chain: 1<<64 - 1}
	b := &batch{Entry: fence.Entry{
		Tile: 0x85283473fffffff, Kind: fence.KindBatch, Position: p, Prev: p, Tick: 1 << 40,
		At: time.UnixMilli(1 << 41), Payload: make([]byte, 500), Hidden: 1<<64 - 1,
	}}
	over := len(b.bytes(nil, form(relaypb.Binary), fence.AreaSet{})) - 500
	t.Logf("%d bytes of protocol around a payload of 500", over)
	require.LessOrEqual(t, over, 100)
}

func TestUnencodableTextIsCleaned(t *testing.T) {
	for _, e := range []relaypb.Encoding{relaypb.Binary, relaypb.JSON} {
		frame := prepare(form(e), errorMessage("\xff", relaypb.Code_CODE_INVALID_TILE, "cut \xc3"))
		require.NotEmpty(t, frame)
		bad := &relaypb.ServerMessage{Tile: "\xff"}
		require.NotEmpty(t, prepare(form(e), bad), "even so something goes out")
	}
}

func FuzzDecodeInbound(f *testing.F) {
	for _, m := range []*relaypb.ClientMessage{
		{}, subscribeTo("85283473fffffff", ""),
		{Body: &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{Tile: "1",
			Position: &relaypb.Position{Epoch: 1, Seq: 2, Chain: 3}}}},
		{Body: &relaypb.ClientMessage_Unsubscribe{
			Unsubscribe: &relaypb.Unsubscribe{Tiles: []string{strings.Repeat("f", 16)}},
		}},
	} {
		data, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(data, true)
		data, err = relaypb.JSON.Append(nil, m)
		require.NoError(f, err)
		f.Add(data, false)
	}
	w := newWorld(f)
	r, err := New(w.fan, w.log, Public, &Config{Limits: Limits{MaxTiles: 8}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte, binary bool) {
		c := r.newClient(stranger(r), relaypb.JSON)
		kind := byte(socket.OpText)
		if binary {
			c.form, kind = form(relaypb.Binary), socket.OpBinary
		}
		c.receive(kind, data) // must not panic, whatever comes
		require.LessOrEqual(t, len(c.subs), r.cfg.MaxTilesPerClient)
		for _, s := range c.subs {
			s.leave()
			r.hubs.forget(s.h)
		}
		for _, frame := range c.frames {
			require.NotEmpty(t, frame)
		}
	})
}
