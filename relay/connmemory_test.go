package relay

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/internal/relaypb"
)

// bareClient is a WebSocket client that costs next to nothing: it makes the handshake, subscribes, and leaves what
// comes to the kernel or to skip.
type bareClient struct {
	net.Conn
}

func (s *server) bare(t testing.TB, messages ...*relaypb.ClientMessage) bareClient {
	t.Helper()
	addr := strings.TrimPrefix(s.url, "ws://")
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Protocol: %s\r\n\r\n", addr, relaypb.Subprotocol)
	require.NoError(t, err)
	in := bufio.NewReaderSize(conn, 512)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	for _, m := range messages {
		data, err := proto.Marshal(m)
		require.NoError(t, err)
		require.Less(t, len(data), 126)
		frame := append([]byte{0x82, 0x80 | byte(len(data)), 0, 0, 0, 0}, data...)
		_, err = conn.Write(frame)
		require.NoError(t, err)
	}
	return bareClient{conn}
}

// skip reads at least n bytes and forgets them.
func (c bareClient) skip(t testing.TB, buf []byte, n int) {
	for n > 0 {
		got, err := c.Read(buf)
		require.NoError(t, err)
		n -= got
	}
}

// memory is what the process holds, heap and stacks.
func memory() uint64 {
	for range 3 { // stacks shrink by half at each collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// BenchmarkConnectionMemory is what a connection that watches one tile costs the relay, with what a bare client costs
// in the same process (some 600 bytes): when nothing happens, and between the batches of a tile that ticks.
func BenchmarkConnectionMemory(b *testing.B) {
	w := newWorld(b)
	cfg := still()
	cfg.PingInterval = time.Hour
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	const n = 2000
	for b.Loop() {
		clients := make([]bareClient, 0, n)
		for range 50 { // the first make what all share
			clients = append(clients, s.bare(b, subscribeTo(tileA.String())))
		}
		before := memory()
		for range n - 50 {
			clients = append(clients, s.bare(b, subscribeTo(tileA.String())))
		}
		eventually(b, func() bool { return s.Stats().SyncsOut%n == 0 }, "the Syncs are out")
		time.Sleep(100 * time.Millisecond)
		b.ReportMetric(float64(memory()-before)/(n-50), "idle-B/conn")
		buf := make([]byte, 64<<10)
		for range 20 {
			out := s.Stats().BytesOut
			o.tickOn(1)
			eventually(b, func() bool { return s.Stats().BytesOut-out > n*80 }, "the batch is out")
			for _, c := range clients {
				c.skip(b, buf, 80)
			}
		}
		b.ReportMetric(float64(memory()-before)/(n-50), "ticking-B/conn")
		for _, c := range clients {
			_ = c.Close()
		}
		eventually(b, func() bool { return s.Stats().Clients == 0 }, "they are gone")
	}
}
