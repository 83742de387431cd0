package tilehttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// Between two attempts to reach a process, doubling with each that fails, give or take a quarter.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
)

// peer is a process that intents were sent to. The client's mutex guards it.
type peer struct {
	link    *uplink       // the latest connection; nil: there is none
	dialing chan struct{} // closed when the attempt under way has ended; nil: there is none
	waiting int           // calls that wait for it

	failures int // attempts in a row that failed, and connections that ended before they served
	err      error
	retry    time.Time // no attempt before
}

// uplink returns the connection to contact for a call, and makes it if there is none. After a failure no attempt is
// made for the time of the backoff; the last one's error is returned instead.
func (c *Client) uplink(under *call, contact string) (*uplink, error) {
	for {
		c.mu.Lock()
		p := c.peers[contact]
		switch {
		case c.ending:
			c.mu.Unlock()
			return nil, errClosed
		case p == nil:
			p = &peer{}
			c.peers[contact] = p
		case p.link != nil && p.link.open():
			defer c.mu.Unlock()
			return p.link, nil
		case p.waiting >= c.cfg.tuning.MaxInFlight:
			defer c.mu.Unlock()
			return nil, fmt.Errorf("%d intents wait for a connection to %s: %w", p.waiting, contact, tile.ErrOverloaded)
		}
		if p.dialing == nil {
			if left := time.Until(p.retry); left > 0 {
				defer c.mu.Unlock()
				return nil, fmt.Errorf("next attempt in %v: %w", left.Round(time.Millisecond), p.err)
			}
			p.dialing = make(chan struct{})
			c.work.Go(func() { c.dial(contact, p) })
		}
		p.waiting++
		dialing := p.dialing
		c.mu.Unlock()
		err := under.await(dialing)
		c.mu.Lock()
		p.waiting--
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// dial makes the connection to a peer, and serves it.
func (c *Client) dial(contact string, p *peer) {
	conn, err := c.handshake(contact)
	var u *uplink
	ctx, stop := context.WithCancelCause(c.life)
	defer stop(nil)
	c.mu.Lock()
	if err == nil && c.ending {
		err = errClosed
		_ = conn.CloseNow()
	}
	if err == nil {
		u = &uplink{link: newLink(conn, c.cfg.tuning.WriteTimeout, c.cfg.tuning.PingInterval), contact: contact,
			limit: c.cfg.tuning.MaxInFlight, counts: &c.counts, waiting: map[uint64]*call{}, stop: stop}
		p.link = u
	} else {
		p.failed(err)
		c.sweep()
	}
	close(p.dialing)
	p.dialing = nil
	failures := p.failures
	c.mu.Unlock()
	if err != nil {
		c.counts.failed.Add(1)
		if failures == 1 && !errors.Is(err, errClosed) {
			c.cfg.Logger.Warn("tile server not reached", "contact", contact, "error", err)
		}
		return
	}
	c.counts.dialed.Add(1)
	c.cfg.Logger.Info("tile server connected", "contact", contact)
	c.ended(contact, p, u, u.run(ctx))
}

// handshake connects to a contact.
func (c *Client) handshake(contact string) (*websocket.Conn, error) {
	url, err := c.cfg.urlAt(contact, Path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.life, dialTimeout)
	defer cancel()
	offer := c.cfg.Keys.offer(contact)
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // the package says not to
		HTTPClient: c.http, HTTPHeader: offer, Subprotocols: []string{subprotocol}})
	switch {
	case err != nil && resp != nil:
		return nil, fmt.Errorf("%s answered with status %d: %w", url, resp.StatusCode, err)
	case err != nil:
		return nil, err
	case conn.Subprotocol() != subprotocol:
		_ = conn.CloseNow()
		return nil, fmt.Errorf("%s does not speak %s", url, subprotocol)
	}
	if err := c.cfg.Keys.meet(ctx, conn, offer, resp.Header); err != nil {
		_ = conn.CloseNow()
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return conn, nil
}

// ended tidies up after a connection.
func (c *Client) ended(contact string, p *peer, u *uplink, err error) {
	c.mu.Lock()
	if p.link == u { // else it drained, and was replaced
		p.link = nil
	}
	if u.served {
		p.failures, p.err, p.retry = 0, nil, time.Time{}
	} else {
		p.failed(err)
	}
	c.mu.Unlock()
	unknown := u.end(err)
	c.counts.unknown.Add(uint64(unknown))
	if errors.Is(err, errFinished) || errors.Is(err, errClosed) {
		c.cfg.Logger.Info("tile server disconnected", "contact", contact, "unknown", unknown)
		return
	}
	c.counts.broken.Add(1)
	c.cfg.Logger.Warn("connection to a tile server broke", "contact", contact, "unknown", unknown, "error", err)
}

// failed sets the backoff.
func (p *peer) failed(err error) {
	p.failures++
	p.err = err
	p.retry = time.Now().Add(wait.Backoff(minBackoff, maxBackoff, p.failures))
}

// sweep forgets the processes that were not tried for a while.
func (c *Client) sweep() {
	for contact, p := range c.peers {
		if p.link == nil && p.dialing == nil && p.waiting == 0 && time.Since(p.retry) > time.Minute {
			delete(c.peers, contact)
		}
	}
}
