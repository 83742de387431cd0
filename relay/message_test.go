package relay

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
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
		peer.force(seal(append(make([]byte, maxHeader), payload...), finBinary))
		peer.force(seal(append(make([]byte, maxHeader), payload...), finText))
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
	over := len(b.bytes(form(relaypb.Binary), fence.AreaSet{})) - 500
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

func TestSendPacksAndChunks(t *testing.T) {
	a, b := net.Pipe()
	counter := &counters{}
	w := &wire{Conn: a, total: &counter.bytesOut}
	frames := [][]byte{[]byte("one"), bytes.Repeat([]byte("x"), 10_000), bytes.Repeat([]byte("y"), 200_000),
		[]byte("two"), []byte("three")}
	var want []byte
	for _, f := range frames {
		want = append(want, f...)
	}
	writes := make(chan int, 100)
	got := make(chan []byte)
	go func() {
		var all []byte
		buf := make([]byte, 1<<20)
		for len(all) < len(want) {
			n, err := b.Read(buf)
			if err != nil {
				break
			}
			writes <- n
			all = append(all, buf[:n]...)
		}
		got <- all
	}()
	require.NoError(t, w.send(frames, time.Second))
	require.Equal(t, want, <-got)
	require.Len(t, writes, 1+4+1, "small frames together, large ones in pieces")
	require.EqualValues(t, len(want), counter.bytesOut.Load())

	require.Error(t, w.send(frames, 10*time.Millisecond), "nobody reads any more")
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
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
	r, err := New(w.fan, w.log, &Config{Public: true, Limits: Limits{MaxTiles: 8}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte, binary bool) {
		c := r.newClient(&http.Request{}, relaypb.JSON)
		kind := byte(opText)
		if binary {
			c.form, kind = form(relaypb.Binary), opBinary
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
