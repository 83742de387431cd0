package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/session"
)

// namesAMessage is how many tiles a Subscribe names for what another message costs of the inbound rate: the game is
// asked about each.
const namesAMessage = 8

// run serves the client until the connection ends, then undoes everything and calls left. A connection that waits for
// its client holds a goroutine that has never needed more stack than one begins with: what serves a message leaves the
// waiting to a new one.
func (c *client) run(left func()) {
	c.wire.Await()
	if how := c.serveMessage(); how == "" {
		go c.run(left)
	} else {
		c.over(how)
		left()
	}
}

func (c *client) over(how string) {
	c.gone(how)
	_ = c.wire.Close()
	c.writers.Wait()
	for _, s := range c.subs {
		s.leave()
		c.hubs.count(s, false)
	}
	code, reason := c.cause()
	c.cfg.Logger.Debug("client closed", "remote", c.sess.Remote(), "code", code, "reason", reason)
	hook.Call(c.cfg.Hooks.ClientClosed, ClientClosedInfo{Remote: c.sess.Remote(), Actor: c.sess.Actor(),
		Subprotocol: c.form.encoding().Subprotocol(), Code: code, Reason: reason, Open: time.Since(c.opened),
		Bytes: c.wire.Sent()})
}

// serveMessage serves the next message. It returns how the connection has ended, in words; empty: it has not.
func (c *client) serveMessage() (how string) {
	op, data, err := c.wire.Next()
	if wrong, ok := errors.AsType[*socket.FrameError](err); ok {
		c.count.badMessages.Add(1)
		c.shut(wrong.Status, wrong.Reason, true)
		c.wire.AwaitClose()
	}
	switch {
	case err != nil:
		return "connection lost: " + err.Error()
	case op == socket.OpPing:
		c.reply(socket.Frame(socket.OpPong, data)) // in turn with the frames
	case op == socket.OpPong:
	case op == socket.OpClose:
		if !c.closes() { // else it is the answer to ours
			_ = c.wire.Send(c.cfg.closeTimeout, socket.Frame(socket.OpClose, data[:min(len(data), 2)]))
		}
		return fmt.Sprintf("closed by the client with status %d", socket.CloseStatus(data))
	default:
		c.receive(op, data)
	}
	return ""
}

// receive serves one message from the client.
func (c *client) receive(op byte, data []byte) {
	now := time.Now()
	if c.sess.Expired(now) {
		c.expire()
		return
	}
	if c.overRate(now, 1) {
		c.violate(relaypb.Code_CODE_RATE_LIMITED, "too many messages")
		return
	}
	m, err := decodeInbound(c.form.encoding(), op, data)
	if err != nil {
		c.violate(relaypb.Code_CODE_MALFORMED, err.Error())
		return
	}
	switch body := m.GetBody().(type) {
	case *relaypb.ClientMessage_Subscribe:
		c.overRate(time.Now(), (len(body.Subscribe.GetTiles())+len(body.Subscribe.GetHeld()))/namesAMessage)
		c.subscribeAll(body.Subscribe)
	case *relaypb.ClientMessage_Unsubscribe:
		for _, name := range body.Unsubscribe.GetTiles() {
			c.unsubscribe(name)
		}
	case *relaypb.ClientMessage_Resync:
		c.count.resyncs.Add(1)
		c.resync(body.Resync.GetTile(), stateOf(body.Resync))
	case *relaypb.ClientMessage_Watch:
		if areas, ok := c.areas(body.Watch); ok {
			c.watch(body.Watch.GetTile(), areas, body.Watch.GetNumber())
		}
	case *relaypb.ClientMessage_Refresh:
		aside(func() { c.refresh(body.Refresh.GetToken()) })
	}
	// Anything else is a newer client's: ignored, as the protocol says.
}

// stateOf reads what a client says it holds, from a Held or a Resync.
func stateOf(m interface {
	GetPosition() *relaypb.Position
	GetEpochFloor() uint64
}) clientState {
	at := m.GetPosition().Fence()
	return clientState{at: at, floor: max(at.Epoch, fence.Epoch(m.GetEpochFloor()))}
}

// areas reads what a client wants to watch, from a Held or a Watch. One that names no areas there can be breaks the
// protocol.
func (c *client) areas(m interface{ GetAreas() []uint32 }) (areas fence.AreaSet, ok bool) {
	areas, err := relaypb.ToAreas(m.GetAreas())
	if err != nil {
		c.violate(relaypb.Code_CODE_MALFORMED, err.Error())
	}
	return areas, err == nil
}

// decodeInbound reads a message of the connection's encoding.
func decodeInbound(e relaypb.Encoding, op byte, data []byte) (*relaypb.ClientMessage, error) {
	switch {
	case op == socket.OpText && e != relaypb.JSON:
		return nil, fmt.Errorf("a text message on subprotocol %s", e.Subprotocol())
	case op == socket.OpBinary && e != relaypb.Binary:
		return nil, fmt.Errorf("a binary message on subprotocol %s", e.Subprotocol())
	}
	m := &relaypb.ClientMessage{}
	if err := e.Decode(data, m); err != nil {
		return nil, fmt.Errorf("message cannot be read: %w", err)
	}
	return m, nil
}

// violate tells the client what it did and closes the connection.
func (c *client) violate(code relaypb.Code, text string) {
	c.count.badMessages.Add(1)
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	c.refuse("", code, text)
	c.shut(relaypb.ClosePolicy, code.String(), true)
}

// maxErrorText and maxTileText bound what of a client's words is repeated to it.
const (
	maxErrorText = 200
	maxTileText  = 32
)

// overRate counts messages and reports whether they are too many.
func (c *client) overRate(now time.Time, messages int) bool {
	return !c.inbound.Spend(now, messages, c.cfg.InboundRate*int(socket.BudgetWindow/time.Second))
}

// tile reads a tile's name, answering one that is none.
func (c *client) tile(name string) (fence.TileID, bool) {
	tile, err := fence.ParseTileID(name)
	if err != nil {
		c.count.badMessages.Add(1)
		c.refuse(name[:min(len(name), maxTileText)], relaypb.Code_CODE_INVALID_TILE,
			"not an H3 index in lower-case hexadecimal")
		return 0, false
	}
	return tile, true
}

func (c *client) subscribeAll(m *relaypb.Subscribe) {
	for _, name := range m.GetTiles() {
		if c.closes() {
			return // the game is not asked for a client that it has ended
		}
		c.subscribe(name, fence.AreaSet{}, clientState{})
	}
	for _, held := range m.GetHeld() {
		if areas, ok := c.areas(held); ok && !c.closes() {
			c.subscribe(held.GetTile(), areas, stateOf(held))
		}
	}
}

// subscribe starts delivery of a tile. A tile subscribed again is sent a Sync again.
func (c *client) subscribe(name string, areas fence.AreaSet, have clientState) {
	tile, ok := c.tile(name)
	if !ok {
		return
	}
	if s := c.watching(tile); s != nil {
		c.allowed(tile, areas, func() { s.resync(areas, 0, have) })
		return
	}
	if len(c.subs) >= c.cfg.MaxTilesPerClient {
		c.refuse(name, relaypb.Code_CODE_TOO_MANY_TILES,
			fmt.Sprintf("at most %d tiles at once", c.cfg.MaxTilesPerClient))
		return
	}
	c.allowed(tile, areas, func() { c.join(tile, areas, have) })
}

// allowed calls f if the game lets the client watch areas of the tile. If it does not, the client is sent
// CODE_FORBIDDEN, and watches the tile no more.
func (c *client) allowed(tile fence.TileID, areas fence.AreaSet, f func()) {
	aside(func() { c.decide(tile, areas, f) })
}

// aside calls f on a stack of its own and waits for it. A connection's stack does not become smaller again once it has
// been deep, and would take twice as much for as long as the connection lasts.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (c *client) decide(tile fence.TileID, areas fence.AreaSet, f func()) {
	err := c.sess.Authorize(func(ctx context.Context, who session.Identity) error {
		return c.cfg.authorize(ctx, who, tile, areas)
	}, f)
	if err == nil {
		return
	}
	c.cfg.refusals.Info("tile refused", "remote", c.sess.Remote(), "actor", c.sess.Actor(), "tile", tile,
		"areas", areas.List(), "error", err)
	c.part(tile)
	c.refuse(tile.String(), relaypb.Code_CODE_FORBIDDEN, "not allowed")
}

// join makes the subscription of a tile.
func (c *client) join(tile fence.TileID, areas fence.AreaSet, have clientState) {
	holder := c.sess.Holder()
	for {
		c.awaitTurn(tile)
		h := c.hubs.open(tile, holder)
		if h == nil {
			c.refuse(tile.String(), relaypb.Code_CODE_OVERLOADED, "the relay watches as many tiles as it can")
			return
		}
		s := &subscription{h: h, out: &c.queue, form: c.form, holder: holder, areas: areas,
			has: have}
		if s.join() {
			c.subs[tile] = s
			c.watches(len(c.subs))
			c.hubs.count(s, true)
			return
		}
		c.hubs.forget(h) // it was just dropped
	}
}

// turnPause is how long a client that waits for its turn is left without a look whether it has ended.
const turnPause = 100 * time.Millisecond

// awaitTurn holds a client up that opens tiles which the relay does not watch faster than its share lets it: each is a
// read of the store, of which all clients have as many at once as Limits.MaxRepairs.
func (c *client) awaitTurn(tile fence.TileID) {
	if c.hubs.find(tile) != nil {
		return
	}
	for wait := c.share.opensWait(); wait > 0 && !c.closes(); wait = c.share.opensWait() {
		time.Sleep(min(wait, turnPause))
	}
}

// watching is the client's subscription of a tile; nil: it has none, or the relay has ended it.
func (c *client) watching(tile fence.TileID) *subscription {
	s := c.subs[tile]
	if s != nil && !s.here() {
		c.part(tile)
		return nil
	}
	return s
}

func (c *client) unsubscribe(name string) {
	if tile, ok := c.tile(name); ok {
		c.part(tile)
	}
}

// part ends the subscription of a tile, if there is one.
func (c *client) part(tile fence.TileID) {
	if s := c.subs[tile]; s != nil {
		s.leave()
		c.hubs.count(s, false)
		delete(c.subs, tile)
		c.watches(len(c.subs))
	}
}

// subscribed is the subscription of a tile that a client names. It answers a client that has none.
func (c *client) subscribed(name string) *subscription {
	tile, ok := c.tile(name)
	if !ok {
		return nil
	}
	s := c.watching(tile)
	if s == nil {
		c.refuse(name, relaypb.Code_CODE_NOT_SUBSCRIBED, "subscribe to the tile first")
	}
	return s
}

func (c *client) resync(name string, have clientState) {
	if s := c.subscribed(name); s != nil {
		c.allowed(s.h.tile, s.areas, func() { s.resync(s.areas, s.watch, have) })
	}
}

func (c *client) watch(name string, areas fence.AreaSet, number uint32) {
	if s := c.subscribed(name); s != nil {
		c.allowed(s.h.tile, areas, func() { s.watchAreas(areas, number) })
	}
}
