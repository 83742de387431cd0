package relayclient

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/internal/relaypb"
)

// ErrNoConnection means that the client is between connections: the next one begins with a new token.
var ErrNoConnection = errors.New("relayclient: no connection")

// Refresh gives the connection a new token for the same player. With Config.Token the client does it by itself. It
// returns when the request is written. A token that the relay does not take is reported to Config.Refused, and the
// session goes on for as long as it would have. Errors: ErrNoConnection; as for Subscribe.
func (c *Client) Refresh(ctx context.Context, token string) error {
	c.mu.Lock()
	conn, err := c.conn, c.ended()
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case conn == nil:
		return ErrNoConnection
	}
	return conn.send(ctx, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Refresh{
		Refresh: &relaypb.Refresh{Token: token}}})
}

// extend notes how long the session lasts, and gives a new token when three quarters of that have passed. The timer is
// set again by the relay's answer; without one, in the time that is left.
func (c *Client) extend(left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopRenewal()
	if c.cfg.Token == nil || left <= 0 || c.conn == nil {
		return
	}
	c.renewal = time.AfterFunc(left*3/4, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conn != nil { // so the client runs, and waits at its end
			c.renewals.Go(func() { c.renewNow(left / 4) })
		}
	})
}

func (c *Client) renewNow(left time.Duration) {
	if left > minRenewal {
		c.extend(left) // until the answer comes
	}
	token, err := c.cfg.Token(c.ctx)
	if err == nil {
		err = c.Refresh(c.ctx, token)
	}
	if err != nil {
		c.cfg.Logger.Warn("session not refreshed", "error", err)
	}
}

// minRenewal is the least time in which it is worth trying again.
const minRenewal = 100 * time.Millisecond

// stopRenewal ends the timer. The mutex is held.
func (c *Client) stopRenewal() {
	if c.renewal != nil {
		c.renewal.Stop()
	}
	c.renewal = nil
}
