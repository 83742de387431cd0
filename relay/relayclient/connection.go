package relayclient

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/relaypb"
	"github.com/tilefence/tilefence/relay/session"
)

// keepBuffer is the largest read buffer kept between messages.
const keepBuffer = 64 << 10

// connection is one WebSocket to a relay, in messages. One goroutine reads; any may send.
type connection struct {
	*websocket.Conn
	shown    string // the URL without secrets
	cfg      *Config
	encoding relaypb.Encoding
	// the relay has taken the subscription that the handshake named
	subscribed bool
	// cuts the connection when nothing comes: a relay sends pings, so silence means that it is gone
	idle *time.Timer
	buf  bytes.Buffer
}

// dial makes a connection, and names a subscription in the handshake; nil: none. status is the relay's answer to the
// handshake; zero: there was none.
func dial(
	ctx context.Context, url string, first *relaypb.Subscribe, cfg *Config,
) (c *connection, status int, err error) {
	c = &connection{shown: socket.Redact(url), cfg: cfg, encoding: cfg.encoding()}
	compression := websocket.CompressionDisabled
	if cfg.Compress {
		compression = websocket.CompressionNoContextTakeover
	}
	header := cfg.Header
	if cfg.Token != nil {
		token, err := cfg.Token(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("relay %s: token: %w", c.shown, err)
		}
		header = session.WithToken(header, token)
	}
	full := url
	if first != nil {
		full, _ = relaypb.SubscribeURL(url, first) // without it, if it is too long
	}
	conn, resp, err := websocket.Dial(ctx, full, &websocket.DialOptions{
		CompressionMode: compression,
		HTTPClient:      cfg.HTTPClient,
		HTTPHeader:      header,
		Subprotocols:    []string{c.encoding.Subprotocol()},
		OnPingReceived: func(context.Context, []byte) bool { // called by read
			c.idle.Reset(cfg.IdleTimeout)
			return true
		},
	})
	if resp != nil {
		status = resp.StatusCode
	}
	if err != nil {
		return nil, status, fmt.Errorf("relay %s: %w", c.shown, socket.DialError(err, resp))
	}
	if got := conn.Subprotocol(); got != c.encoding.Subprotocol() {
		_ = conn.CloseNow()
		return nil, status, fmt.Errorf("relay %s: speaks %q, not %q", c.shown, got, c.encoding.Subprotocol())
	}
	conn.SetReadLimit(maxMessage)
	c.Conn, c.subscribed = conn, full != url && resp.Header.Get(relaypb.SubscribedHeader) == "1"
	c.idle = time.AfterFunc(cfg.IdleTimeout, func() { _ = conn.CloseNow() })
	return c, status, nil
}

// read reads the next message into m and returns its length.
func (c *connection) read(m *relaypb.ServerMessage) (n int, err error) {
	// The context is never cancelled: closing the connection ends the read.
	_, r, err := c.Reader(context.Background())
	if err != nil {
		return 0, err
	}
	if c.buf.Cap() > keepBuffer {
		c.buf = bytes.Buffer{}
	}
	c.buf.Reset()
	if _, err = c.buf.ReadFrom(r); err != nil {
		return 0, err
	}
	c.idle.Reset(c.cfg.IdleTimeout)
	if err = c.encoding.Decode(c.buf.Bytes(), m); err != nil {
		_ = c.Close(websocket.StatusUnsupportedData, "message cannot be read")
		return 0, fmt.Errorf("relay %s: message cannot be read: %w", c.shown, err)
	}
	return c.buf.Len(), nil
}

// send writes messages.
func (c *connection) send(ctx context.Context, messages ...*relaypb.ClientMessage) error {
	kind := websocket.MessageBinary
	if c.encoding == relaypb.JSON {
		kind = websocket.MessageText
	}
	for _, m := range messages {
		data, err := c.encoding.Append(nil, m)
		if err != nil {
			return err
		}
		if err := c.write(ctx, kind, data); err != nil {
			return fmt.Errorf("relay %s: %w", c.shown, err)
		}
	}
	return nil
}

func (c *connection) write(ctx context.Context, kind websocket.MessageType, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return c.Write(ctx, kind, data)
}

// end cuts the connection if it is still open.
func (c *connection) end() {
	c.idle.Stop()
	_ = c.CloseNow()
}
