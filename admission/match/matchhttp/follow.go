package matchhttp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/session"
)

const (
	writeWithin = 5 * time.Second  // of one message, to a client that may have gone
	pingEvery   = 20 * time.Second // a client that does not answer within as long again has gone

	// statusExpired closes a WebSocket whose player's identity has expired, as relays and gateways do.
	statusExpired websocket.StatusCode = 4003
)

// follow serves a ticket once, or for as long as a WebSocket is open.
func (h *Handler) follow(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		h.serve(h.own)(w, r)
		return
	}
	sess, err := h.gate.Accept(r)
	if err != nil {
		gate.Answer(w, err)
		return
	}
	defer sess.Close()
	if err := sess.Identify(r); err != nil {
		gate.Refuse(w, r, socket.Offer{Subprotocol: Protocol}, err)
		return
	}
	s, err := h.own(w, r, sess.Actor())
	if err != nil {
		Refuse(w, err)
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Protocol}})
	if err != nil {
		return // it has been answered
	}
	defer func() { _ = c.CloseNow() }() // it may be closed already
	ctx, end := context.WithCancelCause(c.CloseRead(r.Context()))
	defer end(nil)
	if err = sess.Register(r, func() {}, func() { end(gate.ErrFull) }); err == nil {
		err = h.show(ctx, c, sess, s, end)
	}
	status, reason := parting(err)
	_ = c.Close(status, reason) // the client may have gone
}

// show sends a ticket and each of its changes to a client. It returns why it ends: nil after a terminal state, and when
// the client has gone.
func (h *Handler) show(
	ctx context.Context, c *websocket.Conn, sess *gate.Session, s match.Status, end context.CancelCauseFunc,
) error {
	if left := sess.Remaining(time.Now()); left > 0 {
		defer time.AfterFunc(left, func() { end(session.ErrExpired) }).Stop()
	}
	// The library cuts a connection when the context of a call ends, so those of calls do not end with ctx: the client
	// is to be sent a close frame.
	calls := context.WithoutCancel(ctx)
	pings := time.NewTicker(pingEvery)
	defer pings.Stop()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-pings.C:
			}
			bounded, cancel := context.WithTimeout(calls, pingEvery)
			err := c.Ping(bounded)
			cancel()
			if err != nil {
				end(nil)
				return
			}
		}
	}()
	err := h.lobby.Watch(ctx, h.queue, s.Ticket.ID, func(s match.Status) bool {
		bounded, cancel := context.WithTimeout(calls, writeWithin)
		defer cancel()
		return wsjson.Write(bounded, c, h.view(s, sess.Actor())) == nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// parting is how a WebSocket is closed that has ended for an error.
func parting(err error) (websocket.StatusCode, string) {
	switch {
	case err == nil, errors.Is(err, match.ErrUnknown): // which was kept for an hour after its end
		return websocket.StatusNormalClosure, ""
	case errors.Is(err, session.ErrExpired):
		return statusExpired, "the session has expired"
	case errors.Is(err, match.ErrCrowded): // of its players' other connections
		return websocket.StatusTryAgainLater, match.ErrCrowded.Error()
	}
	return websocket.StatusTryAgainLater, "follow the ticket again"
}
