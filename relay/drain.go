package relay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tilefence/tilefence/relay/relaypb"
)

// Drain sends the clients elsewhere: it refuses new ones, tells those it has that the relay goes away,
// and closes them with status 1001 one after another, in random order, over Config.DrainWindow, so that
// the other relays do not meet them all at once. What is queued for a client is sent before. It returns
// nil when every client has gone, or the cause of ctx when that ended first; the clients left are then
// being closed at once. Run goes on until its own context is cancelled. Without Run there is nobody to
// drain and the Relay can no longer be run.
func (r *Relay) Drain(ctx context.Context) error {
	r.advance(serving, draining)
	if r.advance(idle, stopped) {
		return nil
	}
	clients := r.allClients()
	rand.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
	r.announce(clients)
	err := r.closeSpread(ctx, clients)
	if err == nil {
		done := make(chan struct{})
		go func() {
			r.conns.Wait()
			close(done)
		}()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	for _, c := range r.allClients() {
		c.shut(relaypb.CloseGoingAway, "relay is going away", false)
		_ = c.wire.Close()
	}
	return err
}

// announce tells every client how soon it will be closed.
func (r *Relay) announce(clients []*client) {
	goAway := &relaypb.ServerMessage{Body: &relaypb.ServerMessage_GoAway{GoAway: &relaypb.GoAway{
		Message: "this relay is going away", WithinMs: uint32(r.cfg.DrainWindow.Milliseconds()),
	}}}
	binary, text := prepare(relaypb.Binary, goAway), prepare(relaypb.JSON, goAway)
	for _, c := range clients {
		if c.encoding == relaypb.JSON {
			c.force(text)
		} else {
			c.force(binary)
		}
	}
}

// closeSpread ends the clients one by one over the drain window.
func (r *Relay) closeSpread(ctx context.Context, clients []*client) error {
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, c := range clients {
		at := start.Add(r.cfg.DrainWindow * time.Duration(i+1) / time.Duration(len(clients)))
		timer.Reset(time.Until(at))
		select {
		case <-timer.C:
			c.shut(relaypb.CloseGoingAway, "relay is going away", true)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// closeClients ends every connection at once and waits for them, at most CloseTimeout before the
// connections are cut.
func (r *Relay) closeClients() {
	clients := r.allClients()
	for _, c := range clients {
		c.shut(relaypb.CloseGoingAway, "relay stopped", false)
	}
	cut := time.AfterFunc(r.cfg.CloseTimeout, func() {
		for _, c := range r.allClients() {
			_ = c.wire.Close()
		}
	})
	defer cut.Stop()
	r.conns.Wait()
}
