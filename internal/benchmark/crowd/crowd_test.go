package crowd

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// TestClient: a server that knows the protocol understands the client, and the client reads messages of all lengths.
func TestClient(t *testing.T) {
	lengths := []int{0, 125, 126, 1 << 16, 1 << 20}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"p"}})
		if err != nil {
			return
		}
		kind, body, err := c.Read(ctx)
		if err != nil || kind != websocket.MessageBinary || c.Subprotocol() != "p" {
			_ = c.Close(websocket.StatusPolicyViolation, "")
			return
		}
		c.CloseRead(ctx)
		_ = c.Ping(ctx) // returns when it was answered
		for _, n := range lengths {
			_ = c.Write(ctx, websocket.MessageBinary, bytes.Repeat(body, n))
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
	}))
	t.Cleanup(s.Close)
	c, err := Dial(t.Context(), s.Listener.Addr().String(), "/", "p")
	require.NoError(t, err)
	t.Cleanup(c.Close)
	require.NoError(t, c.Send(false, []byte("x")))
	for _, n := range lengths {
		got, err := c.Next()
		require.NoError(t, err)
		require.Equal(t, bytes.Repeat([]byte("x"), n), got)
	}
	_, err = c.Next()
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, c.Send(true, make([]byte, 1<<16)), "65536 bytes")
}

func TestARefusedHandshake(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	_, err := Dial(t.Context(), s.Listener.Addr().String(), "/", "")
	require.ErrorContains(t, err, "404")
}

func TestGather(t *testing.T) {
	var calls atomic.Int64
	took, err := Gather(50, 10*time.Millisecond, func(int) error {
		calls.Add(1)
		time.Sleep(time.Millisecond)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, took, 50)
	require.EqualValues(t, 50, calls.Load())
	for _, d := range took {
		require.GreaterOrEqual(t, d, time.Millisecond)
	}
	broken := errors.New("broken")
	_, err = Gather(3, time.Millisecond, func(i int) error {
		if i == 2 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "client 3 of 3")
}
