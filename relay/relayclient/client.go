package relayclient

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/internal/wait"
)

// ErrClosed: the client was closed, or its connection has ended for good; Err says why.
var ErrClosed = errors.New("relayclient: closed")

// ErrStale means that a relay stayed behind what the client was shown, so that the client left it for another one.
var ErrStale = errors.New("relayclient: the relay is behind this client")

// ErrSilent means that nothing came from a relay for longer than it is ever silent: the connection is dead.
var ErrSilent = errors.New("relayclient: no sign of life")

// subscribeBatch is how many tiles go into one Subscribe: well below any relay's limit on messages.
const subscribeBatch = 64

// Client is one connection to a relay, or with Config.Reconnect one after another. Create one with Dial.
// All methods are safe for concurrent use.
type Client struct {
	url string
	cfg Config

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	done   chan struct{}

	asking sync.Mutex // held while the application's requests are noted and written: the relay sees them in one order

	mu    sync.Mutex
	conn  *connection // nil between connections
	tiles map[fence.TileID]*tile
	// the number of the last Watch of this connection
	watches  uint32
	requests uint64      // how often the application has changed what is subscribed
	left     error       // why the client itself ends the present connection; nil: it does not
	err      error       // set when done is closed
	renewal  *time.Timer // gives the connection a new token; nil: the session does not expire
	renewals sync.WaitGroup
	changed  int // how often in a row a handshake was out of date when it ended; used by connect alone
	failures int // connections in a row that were not made, or brought nothing; used by the reader alone

	stats struct {
		connects, bytes, syncs, frames, gaps, repaired, resyncs, duplicates, corrupt, stale atomic.Uint64
	}
}

// Dial connects to a relay at a ws:// or wss:// URL. A nil cfg means all defaults, with which events are only counted.
// ctx bounds the handshake, which may take 30 s at most, and not the connection. An *fence.ArgumentError names a field
// of cfg that is out of range; any other error is the handshake's. The first handshake is not tried again.
// Close the client when done.
func Dial(ctx context.Context, url string, cfg *Config) (*Client, error) {
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{url: url, cfg: full, done: make(chan struct{}), tiles: map[fence.TileID]*tile{}}
	for _, id := range c.cfg.Tiles {
		c.renew(id, fence.AreaSet{})
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	first, cancel := context.WithTimeout(ctx, firstDial)
	defer cancel()
	conn, _, err := c.connect(first)
	if err != nil {
		c.cancel(err)
		return nil, err
	}
	go c.run(conn)
	return c, nil
}

// Subscribe starts delivery of tiles. It returns when the request is written; the first answer comes as
// a call of Config.Sync, or of Config.Refused. A tile subscribed already is synced again from scratch.
// With Reconnect a request that meets no connection, or one that is being lost, is noted and made with the
// next one. ErrClosed after the end; another error is that of ctx or of the connection.
func (c *Client) Subscribe(ctx context.Context, tiles ...fence.TileID) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.mu.Lock()
	if err := c.ended(); err != nil {
		c.mu.Unlock()
		return err
	}
	fresh := make([]*tile, 0, len(tiles))
	for _, id := range tiles {
		fresh = append(fresh, c.renew(id, fence.AreaSet{}))
	}
	c.requests++
	conn, asks := c.conn, subscribes(fresh)
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return c.unlessAgain(ctx, conn.send(ctx, asks...))
}

// renew begins the view of some areas of a tile. The mutex is held.
func (c *Client) renew(id fence.TileID, areas fence.AreaSet) *tile {
	t := &tile{id: id, areas: areas}
	if old := c.tiles[id]; old != nil {
		old.rest()
		t.floor, t.unknown = old.floor, old.unknown
	}
	c.tiles[id] = t
	return t
}

// Watch starts delivery of some areas of a tile, and of area 0; without areas, of the whole tile. For a tile that is
// subscribed already it changes the areas: those that are left out are no longer delivered once it has returned and a
// running call has ended; for those that are new comes a call of Config.Sync with Opens, at the position that the
// others have reached, or one without it that starts everything anew, if the relay cannot do better. It returns when
// the request is written. Errors as for Subscribe.
func (c *Client) Watch(ctx context.Context, id fence.TileID, areas ...fence.Area) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	if err := ctx.Err(); err != nil {
		return err // before anything is noted that the relay would not be told
	}
	c.mu.Lock()
	if err := c.ended(); err != nil {
		c.mu.Unlock()
		return err
	}
	c.requests++
	want := fence.Areas(areas...)
	t, conn := c.tiles[id], c.conn
	var asks []*relaypb.ClientMessage
	if t == nil {
		asks = subscribes([]*tile{c.renew(id, want)})
	} else {
		c.watches++
		if added, some := want.Without(t.areas); some {
			t.added = append(t.added, addition{c.watches, added})
		}
		t.areas, t.held = want, t.held.And(want)
		body := &relaypb.ClientMessage_Watch{Watch: &relaypb.Watch{Tile: id.String(), Areas: relaypb.FromAreas(want),
			Number: c.watches}}
		asks = append(asks, &relaypb.ClientMessage{Body: body})
	}
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return c.unlessAgain(ctx, conn.send(ctx, asks...))
}

// subscribes makes the messages that ask for tiles from where they stand. The mutex is held.
func subscribes(tiles []*tile) []*relaypb.ClientMessage {
	var all []*relaypb.ClientMessage
	for part := range slices.Chunk(tiles, subscribeBatch) {
		ask := &relaypb.Subscribe{}
		for _, t := range part {
			if t.floor == 0 && t.areas.All() {
				ask.Tiles = append(ask.Tiles, t.id.String())
				continue
			}
			ask.Held = append(ask.Held, &relaypb.Held{Tile: t.id.String(),
				Position: relaypb.FromPosition(t.position()), EpochFloor: uint64(t.floor),
				Areas: relaypb.FromAreas(t.areas)})
		}
		all = append(all, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: ask}})
	}
	return all
}

// Unsubscribe ends delivery of tiles: no function is called for them any more once it has returned and a
// running call has ended. Errors as for Subscribe.
func (c *Client) Unsubscribe(ctx context.Context, tiles ...fence.TileID) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.mu.Lock()
	if err := c.ended(); err != nil {
		c.mu.Unlock()
		return err
	}
	c.requests++
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
	return c.unlessAgain(ctx, conn.send(ctx, &relaypb.ClientMessage{Body: body}))
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

// run serves one connection after another until the client ends.
func (c *Client) run(conn *connection) {
	defer close(c.done)
	defer c.renewals.Wait()
	for {
		err := c.serve(conn)
		conn.end()
		c.mu.Lock()
		c.conn = nil
		c.stopRenewal()
		if c.left != nil {
			err, c.left = c.left, nil
		}
		c.mu.Unlock()
		if c.ctx.Err() == nil {
			hook.Call(c.cfg.Disconnected, err)
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
func (c *Client) redial() (*connection, error) {
	var after time.Duration // as the relay asked
	for {
		c.failures++
		pause := wait.Backoff(c.cfg.BackoffMin, c.cfg.BackoffMax, c.failures)
		if after > 0 { // and not all at once
			pause = max(pause, after+rand.N(after/2+1))
		}
		if !wait.For(c.ctx, pause) {
			return nil, ErrClosed
		}
		ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
		conn, said, err := c.connect(ctx)
		cancel()
		if err == nil {
			return conn, nil
		}
		if socket.Refused(said.status) {
			return nil, err
		}
		after = said.after
		c.cfg.Logger.Debug("reconnect failed", "url", socket.Redact(c.url), "error", err)
	}
}

// errChanged means that the handshake has named what the application no longer wants.
var errChanged = errors.New("what is subscribed has changed during the handshake")

// connect makes a connection that subscribes to everything: with its handshake, as far as that has room, and then by
// messages. said is the relay's answer to the handshake.
func (c *Client) connect(ctx context.Context) (conn *connection, said response, err error) {
	c.mu.Lock()
	asks, requests := c.everything(), c.requests
	c.mu.Unlock()
	var first *relaypb.Subscribe
	if len(asks) > 0 && c.changed < 2 { // else it names nothing, and cannot be out of date
		first = asks[0].GetSubscribe()
	}
	if conn, said, err = dial(ctx, c.url, first, &c.cfg); err != nil {
		return nil, said, err
	}
	if err := c.resume(conn, asks, requests); err != nil {
		conn.end()
		if errors.Is(err, errChanged) {
			c.changed++
		}
		return nil, said, err
	}
	c.changed = 0
	c.stats.connects.Add(1)
	return conn, said, nil
}

// everything makes the messages that ask for all tiles. The mutex is held.
func (c *Client) everything() []*relaypb.ClientMessage {
	return subscribes(slices.Collect(maps.Values(c.tiles)))
}

// resume makes conn the client's connection and sends what its handshake has not asked for. What it has asked for is
// out of date if there were requests of the application since.
func (c *Client) resume(conn *connection, asks []*relaypb.ClientMessage, requests uint64) error {
	c.asking.Lock() // a Watch that meets the new connection must come after its Subscribe
	defer c.asking.Unlock()
	c.mu.Lock()
	if err := c.ended(); err != nil {
		c.mu.Unlock()
		return err
	}
	switch {
	case c.requests == requests && conn.subscribed:
		asks = asks[1:]
	case conn.subscribed:
		c.mu.Unlock()
		return errChanged
	default:
		asks = c.everything()
	}
	c.conn, c.watches = conn, 0
	for _, t := range c.tiles {
		t.asked, t.added = time.Time{}, nil
		t.rest()
	}
	c.mu.Unlock()
	return conn.send(c.ctx, asks...)
}

// serve reads messages until the connection ends.
func (c *Client) serve(conn *connection) error {
	m := &relaypb.ServerMessage{}
	for {
		n, err := conn.read(m)
		if err != nil {
			return err
		}
		if c.ctx.Err() != nil {
			return ErrClosed
		}
		c.failures = 0
		c.stats.bytes.Add(uint64(n))
		c.receive(conn, m)
	}
}
