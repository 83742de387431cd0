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
)

// TestCloseWhileReconnecting: a Close that comes when redial has dialled and not yet called resume.
func TestCloseWhileReconnecting(t *testing.T) {
	cfg, err := (&Config{Reconnect: true}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan *websocket.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{cfg.encoding().Subprotocol()}})
		if err == nil {
			up <- c
			_, _, _ = c.Read(context.Background())
		}
	}))
	defer server.Close()
	c := &Client{cfg: cfg, done: make(chan struct{}), tiles: map[fence.TileID]*tile{}}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	conn, _, err := dial(c.ctx, "ws"+strings.TrimPrefix(server.URL, "http"), nil, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { _ = c.Close(); close(closed) }()
	for c.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // Close has seen that there is no connection
	go func() {                       // the rest of connect, redial and run
		if err := c.resume(conn, nil, 0); err != nil {
			conn.end()
			c.finish(err)
			close(c.done)
			return
		}
		c.run(conn)
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("Close hangs on a connection that nobody closes")
		_ = (<-up).CloseNow()
		<-closed
	}
}
