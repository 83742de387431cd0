package relay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/wait"
)

// Drain sends the clients to other relays and then ends Run: it refuses new clients, tells those it has that the relay
// goes away, and closes them with status 1001 one after another, in random order, over Config.DrainWindow, so that
// the other relays do not meet them all at once. What is queued for a client is sent before. It returns nil when every
// client has gone and Run has returned, or the cause of ctx when that ended first; the clients left are then
// closed at once. Without Run there is nothing to drain, and the Relay can no longer be run.
func (r *Relay) Drain(ctx context.Context) error {
	if r.life.advance(idle, stopped) {
		close(r.life.ended)
	}
	if !r.life.advance(serving, draining) { // another call drains, or Run ends
		return r.awaitEnd(ctx)
	}
	clients := r.allClients()
	rand.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
	r.announce(clients)
	err := r.closeSpread(ctx, clients)
	if err == nil {
		err = wait.Group(ctx, &r.life.conns)
	}
	if err != nil {
		r.cut()
	}
	close(r.life.drained)
	if err != nil {
		return err
	}
	return r.awaitEnd(ctx)
}

// awaitEnd waits until Run has returned.
func (r *Relay) awaitEnd(ctx context.Context) error {
	select {
	case <-r.life.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// announce tells every client how soon it will be closed.
func (r *Relay) announce(clients []*client) {
	goAway := &relaypb.ServerMessage{Body: &relaypb.ServerMessage_GoAway{GoAway: &relaypb.GoAway{
		Message: "this relay is going away", WithinMs: uint32(r.cfg.DrainWindow.Milliseconds()),
	}}}
	binary, text := prepare(form(relaypb.Binary), goAway), prepare(form(relaypb.JSON), goAway)
	for _, c := range clients {
		if c.form.encoding() == relaypb.JSON {
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
