package relayclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// A relay that refuses a client knows when it will have time for it.
func TestRedialComesBackWhenTheRelaySays(t *testing.T) {
	cfg, err := (&Config{Reconnect: true, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond}).withDefaults()
	require.NoError(t, err)
	var tries []time.Time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries = append(tries, time.Now())
		if len(tries) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{cfg.encoding().Subprotocol()}})
		if err == nil {
			_, _, _ = c.Read(context.Background())
		}
	}))
	defer server.Close()
	c := &Client{url: "ws" + strings.TrimPrefix(server.URL, "http"), cfg: cfg, tiles: map[fence.TileID]*tile{}}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	conn, err := c.redial()
	require.NoError(t, err)
	conn.end()
	require.Len(t, tries, 2)
	require.GreaterOrEqual(t, tries[1].Sub(tries[0]), time.Second)
}
