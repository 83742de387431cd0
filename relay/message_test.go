package relay

import (
	"bytes"
	"context"
	"io"
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

// TestScratchIsUsedAgain: what a message to a client of some areas allocates does not grow with its batches.
func TestScratchIsUsedAgain(t *testing.T) {
	allocations := func(batches int) float64 {
		l := line{}
		for range batches {
			e := l.next(1, 'a')
			e.Payload = nil
			for area := range fence.Area(8) {
				e.Payload = fence.AppendPart(e.Payload, area, make([]byte, 50))
			}
			l = append(l, e)
		}
		v := &view{}
		v.adopt(l.recovery(0), false)
		parts := new(scratch)
		return testing.AllocsPerRun(50, func() {
			m, ok := v.open(parts, fence.Areas(0, 3))
			require.True(t, ok)
			require.Len(t, m.GetTail(), batches)
			prepare(form(relaypb.Binary), syncMessage(tileA, m))
			parts.reset()
		})
	}
	require.InDelta(t, allocations(5), allocations(50), 1)
}

// TestViolations: what must not be sent ends the connection with a status, on a running relay.
func TestViolations(t *testing.T) {
	t.Parallel()
	s := newWorld(t).serve(still())
	violations := map[string]struct {
		sent   []byte
		status int
	}{
		"not masked":                {[]byte{0x82, 1, 'x'}, socket.CloseProtocol},
		"ping in pieces":            {[]byte{0x09, 0x80, 1, 2, 3, 4}, socket.CloseProtocol},
		"a length without measure":  {append([]byte{0x82, 0xff}, bytes.Repeat([]byte{0xff}, 8)...), socket.CloseTooBig},
		"text that is not UTF-8":    {[]byte{0x81, 0x81, 0, 0, 0, 0, 0xff}, socket.CloseBadData},
		"text on a binary protocol": {[]byte{0x81, 0x82, 0, 0, 0, 0, '{', '}'}, relaypb.ClosePolicy},
	}
	t.Run("each", func(t *testing.T) {
		for name, v := range violations {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := s.bare(t)
				_, err := c.Write(v.sent)
				require.NoError(t, err)
				answer, err := io.ReadAll(c) // until the relay closes the connection
				require.NoError(t, err)
				last := bytes.LastIndexByte(answer, 0x88)
				require.GreaterOrEqual(t, last, 0)
				require.Equal(t, v.status, socket.CloseStatus(answer[last+2:]))
				_ = c.Close()
			})
		}
	})
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "all are gone")
	require.GreaterOrEqual(t, int(s.Stats().BadMessages), len(violations))
}

// TestCloseIsAnswered: a client that closes first gets the status back.
func TestCloseIsAnswered(t *testing.T) {
	s := newWorld(t).serve(still())
	c := s.raw(t, relaypb.Subprotocol)
	require.NoError(t, c.Close(websocket.StatusCode(4321), "enough"))
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "it is gone")
}
