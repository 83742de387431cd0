package relayclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
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
	silence
	buf bytes.Buffer
}

// silence cuts a connection on which nothing comes while it is read. The time that the application's functions take
// is not counted, and of a long message every piece is a sign of life.
type silence struct {
	limit  time.Duration // two and a half of the intervals that the relay has named; used by the reader alone
	timer  *time.Timer
	passed atomic.Bool
}

func (s *silence) watch(cut func()) {
	s.limit = firstTimeout
	s.timer = time.AfterFunc(s.limit, func() {
		s.passed.Store(true)
		cut()
	})
}

// heard begins to wait anew.
func (s *silence) heard() { s.timer.Reset(s.limit) }

// expect takes the interval that the relay has named.
func (s *silence) expect(interval time.Duration) {
	if interval > 0 {
		s.limit = min(interval, longestIdle) * 5 / 2
	}
}

// dial makes a connection, and names a subscription in the handshake; nil: none. said is the relay's answer to it.
func dial(
	ctx context.Context, url string, first *relaypb.Subscribe, cfg *Config,
) (c *connection, said response, err error) {
	c = &connection{shown: socket.Redact(url), cfg: cfg, encoding: cfg.encoding()}
	compression := websocket.CompressionDisabled
	if cfg.Compress {
		compression = websocket.CompressionNoContextTakeover
	}
	header := cfg.Header
	if cfg.Token != nil {
		token, err := cfg.Token(ctx)
		if err != nil {
			return nil, response{}, fmt.Errorf("relay %s: token: %w", c.shown, err)
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
			c.heard()
			return true
		},
	})
	if resp != nil {
		said = response{status: resp.StatusCode, after: socket.After(resp)}
	}
	if err != nil {
		return nil, said, fmt.Errorf("relay %s: %w", c.shown, socket.DialError(err, resp))
	}
	if got := conn.Subprotocol(); got != c.encoding.Subprotocol() {
		_ = conn.CloseNow()
		return nil, said, fmt.Errorf("relay %s: speaks %q, not %q", c.shown, got, c.encoding.Subprotocol())
	}
	conn.SetReadLimit(maxMessage)
	c.Conn, c.subscribed = conn, full != url && resp.Header.Get(relaypb.SubscribedHeader) == "1"
	c.watch(func() { _ = conn.CloseNow() })
	return c, said, nil
}

// response is how a relay answers a handshake; the zero value: not at all.
type response struct {
	status int
	after  time.Duration // the relay asks to come back no sooner; zero: it does not
}

// read reads the next message into m and returns its length.
func (c *connection) read(m *relaypb.ServerMessage) (n int, err error) {
	c.heard()
	defer c.timer.Stop()
	defer func() {
		if err != nil && c.passed.Load() {
			err = fmt.Errorf("relay %s: %w for %v", c.shown, ErrSilent, c.limit)
		}
	}()
	// The context is never cancelled: closing the connection ends the read.
	_, r, err := c.Reader(context.Background())
	if err != nil {
		return 0, err
	}
	if c.buf.Cap() > keepBuffer {
		c.buf = bytes.Buffer{}
	}
	c.buf.Reset()
	if _, err = c.buf.ReadFrom(&pieces{r, c}); err != nil {
		return 0, err
	}
	if c.limit == firstTimeout {
		c.limit = idleTimeout
	}
	if err = c.encoding.Decode(c.buf.Bytes(), m); err != nil {
		_ = c.Close(websocket.StatusUnsupportedData, "message cannot be read")
		return 0, fmt.Errorf("relay %s: message cannot be read: %w", c.shown, err)
	}
	return c.buf.Len(), nil
}

// pieces notes that each piece of a message is a sign of life.
type pieces struct {
	io.Reader
	of *connection
}

func (p *pieces) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.of.heard()
	}
	return n, err
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
	c.timer.Stop()
	_ = c.CloseNow()
}
