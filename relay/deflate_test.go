package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// moves is a payload like a game's: n events of some bytes each, in order of ships.
func moves(r *rand.Rand, n int) []byte {
	var content []byte
	for i := range n {
		content = append(content, 5, 2, byte(i), byte(i>>8), byte(r.IntN(256)), byte(r.IntN(8)))
	}
	return fence.AppendPart(nil, 0, content)
}

// TestCompression: a client that offers it is sent the same, in fewer bytes, and may compress what it asks.
func TestCompression(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	r := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		o.publish(o.appendPayload(moves(r, 1000), false))
	}
	o.snapshot()
	o.publish(o.appendPayload(moves(r, 1000), false))
	sizes := map[bool]uint64{}
	for _, compress := range []bool{false, true} {
		for _, asJSON := range []bool{false, true} {
			before := s.Stats().BytesOut
			c := s.watch(t, func(cfg *relayclient.Config) { cfg.Compress, cfg.JSON = compress, asJSON }, tileA)
			c.reaches(o)
			o.publish(o.appendPayload(moves(r, 1000), false))
			o.tickOn(1) // a small one, which is not compressed
			c.reaches(o)
			require.NoError(t, c.Close())
			sizes[compress] += s.Stats().BytesOut - before
		}
	}
	require.Less(t, sizes[true], sizes[false]*8/10)
}

// TestCompressedOnce: clients of one form that watch the same areas are sent the same bytes, which were made once.
func TestCompressedOnce(t *testing.T) {
	w := newWorld(t)
	o := w.claim(tileA, 1)
	e := o.appendPayload(moves(rand.New(rand.NewPCG(1, 2)), 1000), false)
	some, err := relaypb.ToAreas([]uint32{1, 2})
	require.NoError(t, err)
	for _, f := range []form{formOf(relaypb.Binary, true), formOf(relaypb.JSON, true)} {
		b, made := &batch{Entry: e.Watched(fence.AreaSet{})}, map[someAreas][]byte{}
		for _, areas := range []fence.AreaSet{{}, some} {
			first := b.bytes(made, f, areas)
			require.NotZero(t, first[0]&0x40, "it is compressed")
			require.Same(t, &first[0], &b.bytes(made, f, areas)[0])
		}
	}
}

// TestCompressedQuestions: what a client asks may be compressed, in pieces too, and is bounded as it is read.
func TestCompressedQuestions(t *testing.T) {
	s := newWorld(t).serve(still())
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("85283473fffff%02x", i))
	}
	dial := func() *websocket.Conn {
		c, resp, err := websocket.Dial(context.Background(), s.url, &websocket.DialOptions{
			Subprotocols: []string{relaypb.Subprotocol}, CompressionMode: websocket.CompressionNoContextTakeover})
		require.NoError(t, err)
		require.Contains(t, resp.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate")
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	c := dial()
	send(t, c, subscribeTo(names...))
	for range names {
		require.NotNil(t, receive(t, c).GetSync())
	}
	bomb := dial()
	send(t, bomb, subscribeTo(strings.Repeat("0", 1<<20)))
	require.EqualValues(t, websocket.StatusMessageTooBig, closeStatus(t, bomb))
}

// BenchmarkDeflate is what compression wins, and costs, for payloads of a game's events of several sizes.
func BenchmarkDeflate(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, events := range []int{200, 1000, 5000} {
		m := &relaypb.ServerMessage{Tile: tileA.String(), Body: &relaypb.ServerMessage_Frame{
			Frame: &relaypb.Frame{Payload: moves(r, events)}}}
		plain, err := proto.Marshal(m)
		require.NoError(b, err)
		b.Run(fmt.Sprint(len(plain), "B"), func(b *testing.B) {
			var packed []byte
			for b.Loop() {
				packed = socket.Pack(append(make([]byte, socket.MaxHeader), plain...), socket.OpBinary)
			}
			b.ReportMetric(float64(len(packed))/float64(len(plain)), "of-plain")
		})
	}
}
