package relay

import (
	"bytes"
	"io"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// TestViolations: what must not be sent ends the connection with a status, on a running relay.
func TestViolations(t *testing.T) {
	s := newWorld(t).serve(still())
	violations := map[string]struct {
		sent   []byte
		status int
	}{
		"not masked":                {[]byte{0x82, 1, 'x'}, socket.CloseProtocol},
		"ping in pieces":            {[]byte{0x09, 0x80, 1, 2, 3, 4}, socket.CloseProtocol},
		"a length without measure":  {append([]byte{0x82, 0xff}, bytes.Repeat([]byte{0xff}, 8)...), socket.CloseTooBig},
		"text that is not UTF-8":    {[]byte{0x81, 0x81, 0, 0, 0, 0, 0xff}, socket.CloseBadData},
		"text on a binary protocol": {[]byte{0x81, 0x82, 0, 0, 0, 0, '{', '}'}, relaypb.ClosePolicy},
	}
	t.Run("each", func(t *testing.T) {
		for name, v := range violations {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := s.bare(t)
				_, err := c.Write(v.sent)
				require.NoError(t, err)
				answer, err := io.ReadAll(c) // until the relay closes the connection
				require.NoError(t, err)
				last := bytes.LastIndexByte(answer, 0x88)
				require.GreaterOrEqual(t, last, 0)
				require.Equal(t, v.status, socket.CloseStatus(answer[last+2:]))
				_ = c.Close()
			})
		}
	})
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "all are gone")
	require.GreaterOrEqual(t, int(s.Stats().BadMessages), len(violations))
}

// TestCloseIsAnswered: a client that closes first gets the status back.
func TestCloseIsAnswered(t *testing.T) {
	s := newWorld(t).serve(still())
	c := s.raw(t, relaypb.Subprotocol)
	require.NoError(t, c.Close(websocket.StatusCode(4321), "enough"))
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "it is gone")
}
