package relayclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// Lost returns a connection that was lost, so that what is written to it goes nowhere.
func Lost(t testing.TB) *connection { //nolint:revive // for Feed alone
	t.Helper()
	cfg, err := (*Config)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{cfg.encoding().Subprotocol()}})
		if err == nil {
			_ = c.CloseNow()
		}
	}))
	defer server.Close()
	conn, _, err := dial(context.Background(), "ws"+strings.TrimPrefix(server.URL, "http"), nil, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	conn.end()
	return conn
}

// Feed gives messages to a client that has subscribed to a tile, as if they came from a relay.
func Feed(t testing.TB, conn *connection, cfg *Config, id fence.TileID, messages []*relaypb.ServerMessage) {
	t.Helper()
	full, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	full.BackoffMin, full.BackoffMax = time.Hour, time.Hour
	watched := &tile{id: id}
	c := &Client{cfg: full, conn: conn, done: make(chan struct{}), tiles: map[fence.TileID]*tile{id: watched}}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	for _, m := range messages {
		c.receive(conn, m)
	}
	c.mu.Lock()
	watched.rest()
	c.mu.Unlock()
	c.cancel(ErrClosed)
}
