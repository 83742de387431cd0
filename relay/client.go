package relay

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// client is one connection: a goroutine that reads what the client asks for, and one that writes what
// hubs queue. The reader owns the subscriptions; the queue is in queue.go.
type client struct {
	r        *Relay
	conn     *websocket.Conn
	wire     *wire
	encoding relaypb.Encoding
	remote   string
	request  *http.Request // for AuthorizeTile; nil without it, so that requests are not kept
	opened   time.Time

	// Used by the reading goroutine only.
	subs   map[fence.TileID]*subscription
	window time.Time // begin of the present ten seconds of the inbound rate
	inside int       // messages in it

	queue
}

// run reads until the connection ends, and then undoes everything.
func (c *client) run() {
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		c.writeLoop()
	}()
	err := c.readLoop()
	c.gone(closeText(err))
	_ = c.conn.CloseNow()
	<-writer
	for _, s := range c.subs {
		s.h.leave(s)
	}
	c.r.unregister(c)
	code, reason := c.cause()
	c.r.cfg.Logger.Debug("client closed", "remote", c.remote, "code", code, "reason", reason)
	c.r.cfg.Hooks.ClientClosed(ClientClosedInfo{
		ClientInfo: ClientInfo{Remote: c.remote, Subprotocol: c.encoding.Subprotocol()},
		Code:       code, Reason: reason, Open: time.Since(c.opened), Bytes: c.wire.sent.Load(),
	})
}

func closeText(err error) string {
	if code := websocket.CloseStatus(err); code != -1 {
		return fmt.Sprintf("closed by the client with status %d", code)
	}
	return "connection lost: " + err.Error()
}

// readLoop serves messages until the connection ends or the client breaks the protocol.
func (c *client) readLoop() error {
	for {
		// The context is never cancelled: closing the connection ends the read, and costs no watcher a
		// message.
		kind, data, err := c.conn.Read(context.Background())
		if err != nil {
			return err
		}
		c.receive(kind, data)
	}
}

// writeLoop writes what is queued, all of it in one go, and takes a due Sync when the queue is empty.
func (c *client) writeLoop() {
	var spare [][]byte
	for {
		frames, s, what := c.next(spare)
		switch what {
		case nextFrames:
			if err := c.wire.send(frames, c.r.cfg.WriteTimeout); err != nil {
				c.gone("write failed: " + err.Error())
				_ = c.wire.Close()
				return
			}
			clear(frames)
			spare = frames
		case nextSync:
			s.h.sync(s)
		case nextWait:
			select {
			case <-c.wake:
			case <-c.ended:
				return
			}
		case nextClose:
			c.farewell()
			return
		}
	}
}

// farewell sends the close frame and waits for the peer's, for a bounded time.
func (c *client) farewell() {
	code, reason := c.cause()
	t := time.AfterFunc(c.r.cfg.CloseTimeout, func() { _ = c.wire.Close() })
	defer t.Stop()
	_ = c.conn.Close(websocket.StatusCode(code), reason)
}

// sweep sends a ping when one is due, and ends a connection that is silent or has been behind too long.
func (c *client) sweep(now time.Time) {
	cfg := &c.r.cfg
	heard := time.Unix(0, c.wire.heard.Load())
	switch {
	case now.Sub(heard) > cfg.PingInterval*5/2:
		if c.shut(relaypb.CloseIdle, "no answer to pings", false) {
			c.r.count.idleCloses.Add(1)
		}
	case c.slowFor(now) > cfg.SlowTimeout:
		if c.shut(relaypb.CloseTooSlow, "reading too slowly for too long", false) {
			c.r.count.slowCloses.Add(1)
		}
	case c.pingDue(now, cfg.PingInterval):
		c.force(control(finPing, nil))
	}
}

// reply queues an answer to something the client sent. A client that does not read its answers while it
// asks for more is cut off.
func (c *client) reply(frame []byte) {
	if !c.push(frame) {
		c.shut(relaypb.ClosePolicy, "too many requests unread", false)
	}
}

func (c *client) refuse(tile string, code relaypb.Code, text string) {
	c.reply(prepare(c.encoding, errorMessage(tile, code, text)))
}

// register makes a client known; it is closed at once if the relay has begun to send its clients away.
func (r *Relay) register(c *client) {
	r.mu.Lock()
	r.clients[c] = struct{}{}
	r.mu.Unlock()
	r.life.Lock()
	late := r.phase >= draining
	r.life.Unlock()
	if late {
		c.shut(relaypb.CloseGoingAway, "relay stopped", false)
	}
}

func (r *Relay) unregister(c *client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.clients, c)
}

func (r *Relay) allClients() []*client {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*client, 0, len(r.clients))
	for c := range r.clients {
		all = append(all, c)
	}
	return all
}
