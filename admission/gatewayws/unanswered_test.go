package gatewayws

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
)

// pipes is a listener whose connections are in memory, so that a test's time can be faked.
type pipes struct {
	net.Listener
	conns chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p *pipes) Close() error   { return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestAnAnswerThatNeverComes: the gateway answers pings and no intent. A caller without a deadline is told the truth in
// 25 s, callers that have left leave nothing behind, and there is room for others.
func TestAnAnswerThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn)}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Subprotocol}})
			for err == nil {
				_, _, err = c.Read(context.Background())
			}
		})}
		go func() { _ = server.Serve(p) }()
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			p.conns <- theirs
			return ours, nil
		}}
		c, err := Dial(t.Context(), "ws://gateway", &DialConfig{MaxInFlight: 2,
			HTTPClient: &http.Client{Transport: transport}})
		require.NoError(t, err)
		move := Request{Tile: 0x85283083fffffff, Kind: admission.Move}
		began := time.Now()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Do(impatient, move)
		require.ErrorIs(t, err, fence.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = c.Do(t.Context(), move)
		require.ErrorIs(t, err, fence.ErrUnknownOutcome)
		require.Equal(t, 26*time.Second, time.Since(began))
		require.Empty(t, c.waiting)
		require.Empty(t, c.slots)
		_, err = c.Do(t.Context(), move)
		require.ErrorIs(t, err, fence.ErrUnknownOutcome)
		require.NoError(t, c.Close())
		close(p.conns)
		_ = server.Close()
	})
}
