//go:build linux

package crowd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestSocketReadsWhatComes: messages of all lengths arrive whole, in order and however the network cuts them, and what
// the socket sends is what the server reads.
func TestSocketReadsWhatComes(t *testing.T) {
	sizes := []int{0, 1, longest, longest + 1, 1 << 12, 1<<16 - 1, 1 << 16, 1 << 17}
	heard := make(chan int, len(sizes))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		conn.SetReadLimit(1 << 20)
		for i, n := range sizes {
			if err == nil {
				err = conn.Write(context.Background(), websocket.MessageBinary, make([]byte, n))
			}
			if i == 1 && err == nil { // some of these two have come before the Detach
				_, _, err = conn.Read(context.Background())
			}
		}
		for err == nil {
			var body []byte
			if _, body, err = conn.Read(context.Background()); err == nil {
				heard <- len(body)
			}
		}
	}))
	defer server.Close()
	client, err := Dial(t.Context(), strings.TrimPrefix(server.URL, "http://"), "/", "")
	require.NoError(t, err)
	_, err = client.in.Peek(1) // of the first message
	require.NoError(t, err)
	socket, err := client.Detach()
	require.NoError(t, err)
	defer unix.Close(socket.FD)
	require.NoError(t, unix.SetNonblock(socket.FD, true))
	require.NoError(t, socket.Send(true, []byte("begin")))
	var got []int
	buffer := make([]byte, 1000)
	for deadline := time.Now().Add(20 * time.Second); len(got) < len(sizes) && time.Now().Before(deadline); {
		require.NoError(t, socket.Read(buffer, func(body []byte) error {
			got = append(got, len(body))
			return nil
		}))
	}
	require.Equal(t, sizes, got)
	for _, n := range sizes[:6] {
		require.NoError(t, socket.Send(false, make([]byte, n)))
		require.Equal(t, n, <-heard)
	}
}

func TestSocketRefusesWhatIsNoMessage(t *testing.T) {
	for name, data := range map[string]string{"a fragment": "\x02\x01x", "masked": "\x82\x81abcdx"} {
		_, _, _, err := message([]byte(data))
		require.Error(t, err, name)
	}
	for size := range len("\x82\x03abc") {
		_, _, after, err := message([]byte("\x82\x03abc")[:size])
		require.NoError(t, err)
		require.Nil(t, after, "it has not come in whole")
	}
}
