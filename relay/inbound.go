package relay

import (
	"fmt"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// rateWindow is the time over which the inbound rate is averaged.
const rateWindow = 10 * time.Second

// receive serves one message from the client.
func (c *client) receive(kind websocket.MessageType, data []byte) {
	if c.overRate(time.Now()) {
		c.violate(relaypb.Code_CODE_RATE_LIMITED, "too many messages")
		return
	}
	m, err := decodeInbound(c.encoding, kind, data)
	if err != nil {
		c.violate(relaypb.Code_CODE_MALFORMED, err.Error())
		return
	}
	switch body := m.GetBody().(type) {
	case *relaypb.ClientMessage_Subscribe:
		for _, name := range body.Subscribe.GetTiles() {
			c.subscribe(name, clientState{})
		}
		for _, held := range body.Subscribe.GetHeld() {
			c.subscribe(held.GetTile(), stateOf(held))
		}
	case *relaypb.ClientMessage_Unsubscribe:
		for _, name := range body.Unsubscribe.GetTiles() {
			c.unsubscribe(name)
		}
	case *relaypb.ClientMessage_Resync:
		c.r.count.resyncs.Add(1)
		c.resync(body.Resync.GetTile(), stateOf(body.Resync))
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

// decodeInbound reads a message of the connection's encoding.
func decodeInbound(e relaypb.Encoding, kind websocket.MessageType, data []byte) (*relaypb.ClientMessage, error) {
	if (kind == websocket.MessageText) != (e == relaypb.JSON) {
		return nil, fmt.Errorf("%s message on subprotocol %s", kind, e.Subprotocol())
	}
	m := &relaypb.ClientMessage{}
	if err := e.Decode(data, m); err != nil {
		return nil, fmt.Errorf("message cannot be read: %w", err)
	}
	return m, nil
}

// violate tells the client what it did and closes the connection.
func (c *client) violate(code relaypb.Code, text string) {
	c.r.count.badMessages.Add(1)
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

// overRate counts a message and reports whether it is one too many.
func (c *client) overRate(now time.Time) bool {
	if now.Sub(c.window) >= rateWindow {
		c.window, c.inside = now, 0
	}
	c.inside++
	return c.inside > c.r.cfg.InboundRate*int(rateWindow/time.Second)
}

// tile reads a tile's name, answering one that is none.
func (c *client) tile(name string) (fence.TileID, bool) {
	tile, err := fence.ParseTileID(name)
	if err != nil {
		c.r.count.badMessages.Add(1)
		c.refuse(name[:min(len(name), maxTileText)], relaypb.Code_CODE_INVALID_TILE, "not an H3 index in lower-case hexadecimal")
		return 0, false
	}
	return tile, true
}

// subscribe starts delivery of a tile. A tile subscribed again is sent a Sync again.
func (c *client) subscribe(name string, have clientState) {
	tile, ok := c.tile(name)
	if !ok {
		return
	}
	if s := c.subs[tile]; s != nil {
		s.h.resync(s, have)
		return
	}
	if len(c.subs) >= c.r.cfg.MaxTiles {
		c.refuse(name, relaypb.Code_CODE_TOO_MANY_TILES, fmt.Sprintf("at most %d tiles at once", c.r.cfg.MaxTiles))
		return
	}
	if c.request != nil {
		if err := c.r.cfg.AuthorizeTile(c.request, tile); err != nil {
			c.r.cfg.Logger.Info("tile refused", "remote", c.remote, "tile", tile, "error", err)
			c.refuse(name, relaypb.Code_CODE_FORBIDDEN, "not allowed")
			return
		}
	}
	for {
		h := c.r.hub(tile)
		if h == nil {
			c.refuse(name, relaypb.Code_CODE_OVERLOADED, "the relay watches as many tiles as it can")
			return
		}
		s := &subscription{c: c, h: h, has: have}
		if h.join(s) {
			c.subs[tile] = s
			return
		}
		c.r.forget(h) // it was just dropped
	}
}

func (c *client) unsubscribe(name string) {
	tile, ok := c.tile(name)
	if !ok {
		return
	}
	if s := c.subs[tile]; s != nil {
		s.h.leave(s)
		delete(c.subs, tile)
	}
}

func (c *client) resync(name string, have clientState) {
	tile, ok := c.tile(name)
	if !ok {
		return
	}
	if s := c.subs[tile]; s != nil {
		s.h.resync(s, have)
		return
	}
	c.refuse(name, relaypb.Code_CODE_NOT_SUBSCRIBED, "subscribe to the tile first")
}
