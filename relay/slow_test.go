package relay

import (
	"crypto/rand"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/relaypb"
)

// TestASlowClientIsEndedToo: one that reads a large Sync a little at a time is gone soon after the game ended it.
func TestASlowClientIsEndedToo(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.writeTimeout = 2 * time.Second
	cfg.closeTimeout = 500 * time.Millisecond
	cfg.TailBytes = 64 << 20
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	for range 24 {
		p := make([]byte, 1<<19)
		_, _ = rand.Read(p) // so that it is not compressed
		o.appendPayload(p, false)
	}
	url, ok := relaypb.SubscribeURL("/", &relaypb.Subscribe{Tiles: []string{tileA.String()}})
	require.True(t, ok)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(8<<10))
	_, err = conn.Write([]byte("GET " + url + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n" +
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
		"Sec-WebSocket-Protocol: " + relaypb.Subprotocol + "\r\n\r\n"))
	require.NoError(t, err)
	buf, ended := make([]byte, 16<<10), time.Time{}
	for start := time.Now(); ended.IsZero() || len(s.allClients()) > 0; time.Sleep(100 * time.Millisecond) {
		if _, err := conn.Read(buf); err != nil {
			break
		}
		if ended.IsZero() && time.Since(start) > time.Second {
			require.Equal(t, 1, s.EndTile(tileA))
			ended = time.Now()
		}
		require.True(t, ended.IsZero() || time.Since(ended) < 6*time.Second, "it is still there") // of 70 s
	}
}
