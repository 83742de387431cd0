package relayclient_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// TestReconnectWhileWatchesChange: a player who moves more often than a handshake takes still reconnects.
func TestReconnectWhileWatchesChange(t *testing.T) {
	var handshakes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := handshakes.Add(1)
		time.Sleep(60 * time.Millisecond) // TLS and the way
		if r.URL.Query().Has(relaypb.SubscribeParam) {
			w.Header().Set(relaypb.SubscribedHeader, "1")
		}
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{relaypb.Subprotocol}})
		if err != nil {
			return
		}
		defer c.CloseNow()
		if n == 1 {
			return
		}
		for {
			if _, _, err := c.Read(context.Background()); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	id := fence.TileID(0x85283473fffffff)
	cfg := &relayclient.Config{Tiles: []fence.TileID{id}, Reconnect: true, BackoffMin: 20 * time.Millisecond,
		BackoffMax: 40 * time.Millisecond}
	c, err := relayclient.Dial(context.Background(), "ws"+strings.TrimPrefix(server.URL, "http"), cfg)
	require.NoError(t, err)
	defer c.Close()
	for i, start := 0, time.Now(); time.Since(start) < 4*time.Second && c.Stats().Connects < 2; i++ {
		_ = c.Watch(context.Background(), id, fence.Area(1+i%3))
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d handshakes, %d connections", handshakes.Load(), c.Stats().Connects)
	require.EqualValues(t, 2, c.Stats().Connects)
}
