package relayclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// ErrClosed: the client was closed, or its connection has ended for good; Err says why.
var ErrClosed = errors.New("relayclient: closed")

// ErrStale means that a relay stayed behind what the client was shown, so that the client left it for another one.
var ErrStale = errors.New("relayclient: the relay is behind this client")

// subscribeBatch is how many tiles go into one Subscribe: well below any relay's limit on messages.
const subscribeBatch = 64

// keepBuffer is the largest read buffer kept between messages.
const keepBuffer = 64 << 10

// Client is one connection to a relay, or with Config.Reconnect one after another. Create one with Dial.
// All methods are safe for concurrent use.
type Client struct {
	url      string
	cfg      Config
	encoding relaypb.Encoding

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	done   chan struct{}
	heard  atomic.Int64 // when a message or ping last came, nanoseconds since 1970

	mu    sync.Mutex
	conn  *websocket.Conn // nil between connections
	tiles map[fence.TileID]*tile
	left  error // why the client itself ends the present connection; nil: it does not
	err   error // set when done is closed

	stats struct {
		connects, bytes, syncs, frames, gaps, repaired, resyncs, duplicates, corrupt, stale atomic.Uint64
	}
}

// Dial connects to a relay at a ws:// or wss:// URL. A nil cfg means all defaults, with which events are
// only counted. ctx bounds the handshake, not the connection. An *fence.ArgumentError names a field of
// cfg that is out of range; any other error is the handshake's. The first handshake is not tried again.
// Close the client when done.
func Dial(ctx context.Context, url string, cfg *Config) (*Client, error) {
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{url: url, cfg: full, encoding: full.encoding(), done: make(chan struct{}), tiles: map[fence.TileID]*tile{}}
	conn, _, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.conn = conn
	c.stats.connects.Add(1)
	go c.run(conn)
	return c, nil
}

// dial makes one connection. status is the relay's answer to the handshake; zero: there was none.
func (c *Client) dial(ctx context.Context) (conn *websocket.Conn, status int, err error) {
	conn, resp, err := websocket.Dial(ctx, c.url, &websocket.DialOptions{
		HTTPClient:   c.cfg.HTTPClient,
		HTTPHeader:   c.cfg.Header,
		Subprotocols: []string{c.encoding.Subprotocol()},
		OnPingReceived: func(context.Context, []byte) bool {
			c.heard.Store(time.Now().UnixNano())
			return true
		},
	})
	if resp != nil {
		status = resp.StatusCode
	}
	if err != nil {
		return nil, status, fmt.Errorf("relay %s: %w", c.url, err)
	}
	if got := conn.Subprotocol(); got != c.encoding.Subprotocol() {
		_ = conn.CloseNow()
		return nil, status, fmt.Errorf("relay %s: speaks %q, not %q", c.url, got, c.encoding.Subprotocol())
	}
	conn.SetReadLimit(int64(c.cfg.MaxMessage))
	return conn, status, nil
}

// Subscribe starts delivery of tiles. It returns when the request is written; the first answer comes as
// a call of Config.Sync, or of Config.Refused. A tile subscribed already is synced again from scratch.
// With Reconnect a request that meets no connection, or one that is being lost, is noted and made with the
// next one. ErrClosed after the end; another error is that of ctx or of the connection.
func (c *Client) Subscribe(ctx context.Context, tiles ...fence.TileID) error {
	c.mu.Lock()
	if err := c.ended(); err != nil {
		c.mu.Unlock()
		return err
	}
	fresh := make([]*tile, 0, len(tiles))
	for _, id := range tiles {
		t := &tile{id: id}
		if old := c.tiles[id]; old != nil {
			old.rest()
			t.floor = old.floor
		}
		c.tiles[id] = t
		fresh = append(fresh, t)
	}
	conn, asks := c.conn, subscribes(fresh)
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return c.unlessAgain(ctx, c.writeAll(ctx, conn, asks))
}

// subscribes makes the messages that ask for tiles from where they stand. The mutex is held.
func subscribes(tiles []*tile) []*relaypb.ClientMessage {
	var all []*relaypb.ClientMessage
	for part := range slices.Chunk(tiles, subscribeBatch) {
		ask := &relaypb.Subscribe{}
		for _, t := range part {
			if t.floor == 0 {
				ask.Tiles = append(ask.Tiles, t.id.String())
				continue
			}
			ask.Held = append(ask.Held, &relaypb.Held{Tile: t.id.String(), Position: relaypb.FromPosition(t.at), EpochFloor: uint64(t.floor)})
		}
		all = append(all, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: ask}})
	}
	return all
}

// Unsubscribe ends delivery of tiles: no function is called for them any more once it has returned and a
// running call has ended. Errors as for Subscribe.
func (c *Client) Unsubscribe(ctx context.Context, tiles ...fence.TileID) error {
	c.mu.Lock()
	if err := c.ended(); err != nil {
		c.mu.Unlock()
		return err
	}
	names := make([]string, 0, len(tiles))
	for _, t := range tiles {
		if old := c.tiles[t]; old != nil {
			old.rest()
			delete(c.tiles, t)
			names = append(names, t.String())
		}
	}
	conn := c.conn
	c.mu.Unlock()
	if len(names) == 0 || conn == nil {
		return nil
	}
	body := &relaypb.ClientMessage_Unsubscribe{Unsubscribe: &relaypb.Unsubscribe{Tiles: names}}
	return c.unlessAgain(ctx, c.write(ctx, conn, &relaypb.ClientMessage{Body: body}))
}

// unlessAgain passes a failed request's error on, unless the next connection makes the request again.
func (c *Client) unlessAgain(ctx context.Context, err error) error {
	if c.cfg.Reconnect && ctx.Err() == nil {
		return nil
	}
	return err
}

// Position is where the client's view of a tile stands; ok is false before its first Sync and for a tile
// that is not subscribed.
func (c *Client) Position(id fence.TileID) (at fence.Position, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tiles[id]
	if t == nil {
		return fence.Position{}, false
	}
	return t.at, t.synced
}

// Stats returns the counters. It may be called at any time.
func (c *Client) Stats() Stats {
	s := &c.stats
	return Stats{
		Connects: s.connects.Load(), Bytes: s.bytes.Load(), Syncs: s.syncs.Load(), Frames: s.frames.Load(),
		Gaps: s.gaps.Load(), Repaired: s.repaired.Load(), Resyncs: s.resyncs.Load(),
		Duplicates: s.duplicates.Load(), Corrupt: s.corrupt.Load(), Stale: s.stale.Load(),
	}
}

// Done is closed when the client has ended: by Close, by a lost connection without Reconnect, or because
// the relay would not have it back. No function is called after it.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why the client ended: ErrClosed after Close, else the connection's error; nil before the end.
func (c *Client) Err() error {
	select {
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	default:
		return nil
	}
}

// Close ends the connection and waits until no function of Config runs any more; do not call it from one.
// It may be called twice.
func (c *Client) Close() error {
	c.cancel(ErrClosed)
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}
	<-c.done
	return nil
}

// ended is ErrClosed after the end. The mutex is held.
func (c *Client) ended() error {
	if c.err != nil || c.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

func (c *Client) write(ctx context.Context, conn *websocket.Conn, m *relaypb.ClientMessage) error {
	data, err := c.encoding.Append(nil, m)
	if err != nil {
		return err
	}
	kind := websocket.MessageBinary
	if c.encoding == relaypb.JSON {
		kind = websocket.MessageText
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.WriteTimeout)
	defer cancel()
	if err := conn.Write(ctx, kind, data); err != nil {
		return fmt.Errorf("relay %s: %w", c.url, err)
	}
	return nil
}

func (c *Client) writeAll(ctx context.Context, conn *websocket.Conn, all []*relaypb.ClientMessage) error {
	for _, m := range all {
		if err := c.write(ctx, conn, m); err != nil {
			return err
		}
	}
	return nil
}

// run serves one connection after another until the client ends.
func (c *Client) run(conn *websocket.Conn) {
	defer close(c.done)
	for {
		c.cfg.Connected()
		err := c.serve(conn)
		_ = conn.CloseNow()
		c.mu.Lock()
		c.conn = nil
		if c.left != nil {
			err, c.left = c.left, nil
		}
		c.mu.Unlock()
		if c.ctx.Err() == nil {
			c.cfg.Disconnected(err)
		}
		if err == nil || !c.cfg.Reconnect || c.ctx.Err() != nil || websocket.CloseStatus(err) == relaypb.ClosePolicy {
			c.finish(err)
			return
		}
		if conn, err = c.redial(); err != nil {
			c.finish(err)
			return
		}
	}
}

func (c *Client) finish(err error) {
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	c.cancel(err)
	c.mu.Lock()
	c.err = err
	for _, t := range c.tiles {
		t.rest()
	}
	c.mu.Unlock()
}

// redial connects again, as often as it takes, and asks for the tiles subscribed from where they stand.
func (c *Client) redial() (*websocket.Conn, error) {
	for pause := c.cfg.BackoffMin; ; pause = min(2*pause, c.cfg.BackoffMax) {
		t := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return nil, ErrClosed
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.DialTimeout)
		conn, status, err := c.dial(ctx)
		cancel()
		if err == nil {
			if err = c.resume(conn); err == nil {
				c.stats.connects.Add(1)
				return conn, nil
			}
			_ = conn.CloseNow()
		}
		if status >= 400 && status < 500 {
			return nil, err
		}
		c.cfg.Logger.Debug("reconnect failed", "url", c.url, "error", err)
	}
}

// resume makes conn the client's connection and subscribes to everything.
func (c *Client) resume(conn *websocket.Conn) error {
	c.mu.Lock()
	c.conn = conn
	all := make([]*tile, 0, len(c.tiles))
	for _, t := range c.tiles {
		t.asked = time.Time{}
		t.rest()
		all = append(all, t)
	}
	asks := subscribes(all)
	c.mu.Unlock()
	return c.writeAll(c.ctx, conn, asks)
}

// serve reads messages until the connection ends.
func (c *Client) serve(conn *websocket.Conn) error {
	stop := c.watch(conn)
	defer stop()
	var buf bytes.Buffer
	m := &relaypb.ServerMessage{}
	for {
		_, r, err := conn.Reader(context.Background())
		if err != nil {
			return err
		}
		buf.Reset()
		if _, err = buf.ReadFrom(r); err != nil {
			return err
		}
		c.heard.Store(time.Now().UnixNano())
		c.stats.bytes.Add(uint64(buf.Len()))
		if err = c.encoding.Decode(buf.Bytes(), m); err != nil {
			_ = conn.Close(websocket.StatusUnsupportedData, "message cannot be read")
			return fmt.Errorf("relay %s: message cannot be read: %w", c.url, err)
		}
		if buf.Cap() > keepBuffer {
			buf = bytes.Buffer{}
		}
		if c.ctx.Err() != nil {
			return ErrClosed
		}
		c.receive(conn, m)
	}
}

// watch cuts a connection on which nothing has come for IdleTimeout: a relay sends pings, so that silence
// means that nobody is there.
func (c *Client) watch(conn *websocket.Conn) (stop func()) {
	c.heard.Store(time.Now().UnixNano())
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		rest := c.cfg.IdleTimeout - time.Since(time.Unix(0, c.heard.Load()))
		if rest > 0 {
			timer.Reset(rest)
			return
		}
		over = true
		go func() { _ = conn.CloseNow() }() // it waits for the reader, which waits for this mutex in stop
	}
	mu.Lock()
	timer = time.AfterFunc(c.cfg.IdleTimeout, check)
	mu.Unlock()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}
