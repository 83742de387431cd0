//go:build linux

package crowd

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// TestStorm: each client says in its handshake what it wants, and is answered, whatever the length; all of them stay
// until they leave.
func TestStorm(t *testing.T) {
	var inside atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"p"}})
		if err != nil {
			return
		}
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil || c.Subprotocol() != "p" {
			return
		}
		body := bytes.Repeat([]byte{byte(n)}, n)
		inside.Add(1)
		defer inside.Add(-1)
		_ = c.Write(r.Context(), websocket.MessageBinary, bytes.Repeat(body, 10_000))
		_ = c.Write(r.Context(), websocket.MessageBinary, []byte("what comes behind the first"))
		_, _, _ = c.Read(r.Context()) // until the client has left
	}))
	t.Cleanup(s.Close)
	joins := make([]Join, 100)
	for i := range joins {
		joins[i].Addr, joins[i].Path = s.Listener.Addr().String(), fmt.Sprint("/?n=", i)
	}
	got := make([][]byte, len(joins))
	leave, err := Storm(joins, 50*time.Millisecond, "p", func(i int, body []byte) bool {
		require.Nil(t, got[i], "once")
		got[i] = bytes.Clone(body)
		return true
	})
	require.NoError(t, err)
	require.EqualValues(t, len(joins), inside.Load())
	for i := range joins {
		require.Len(t, got[i], i*10_000)
		require.Equal(t, i*10_000, bytes.Count(got[i], []byte{byte(i)}))
		require.Positive(t, joins[i].Took)
	}
	leave()
	waittest.Until(t, func() bool { return inside.Load() == 0 }, time.Minute, time.Millisecond, "they have left")
}

func TestAStormThatFails(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	storm := func(addr string) error {
		_, err := Storm([]Join{{Addr: addr, Path: "/"}}, time.Millisecond, "p", nil)
		return err
	}
	require.ErrorContains(t, storm(s.Listener.Addr().String()), "404")
	require.ErrorContains(t, storm("no address"), "client 1 of 1")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.ReadFull(c, make([]byte, 1))
			_ = c.Close()
		}
	}()
	require.Error(t, storm(l.Addr().String()), "the server hangs up")
	require.NoError(t, l.Close())
	require.Error(t, storm(l.Addr().String()), "nothing listens")
}
