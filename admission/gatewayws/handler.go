package gatewayws

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/socket"
)

// Handler serves clients. Create one with New. It is an http.Handler.
type Handler struct {
	gateway      Admitter
	authenticate AuthenticateFunc
	cfg          Config

	mu       sync.Mutex
	draining bool
	admitted int // clients in their handshake and sessions
	sessions map[*session]struct{}
	served   sync.WaitGroup // what is admitted
}

// New returns a handler. It does no I/O and starts nothing. Errors: a *fence.ArgumentError.
func New(gateway Admitter, authenticate AuthenticateFunc, cfg *Config) (*Handler, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	switch {
	case gateway == nil:
		return nil, &fence.ArgumentError{Field: "gateway", Value: nil, Want: "an admission.Gateway"}
	case authenticate == nil:
		return nil, &fence.ArgumentError{Field: "authenticate", Value: nil,
			Want: "a function that names the actor of a connection"}
	}
	return &Handler{gateway: gateway, authenticate: authenticate, cfg: c, sessions: map[*session]struct{}{}}, nil
}

// ServeHTTP upgrades the request. A connection that it has taken over belongs to the Handler: http.Server.Shutdown does
// not know of it, Drain ends it. Requests that are no upgrade to this subprotocol, or of another origin, or not
// authenticated, or one too many, are answered with an HTTP error.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !offers(r, Subprotocol) {
		http.Error(w, "connect with the WebSocket subprotocol "+Subprotocol, http.StatusBadRequest)
		return
	}
	actor, err := h.authenticate(r)
	if err == nil {
		err = admission.ValidateActor(actor)
	}
	if err != nil {
		h.cfg.refusals.Info("client refused", "remote", r.RemoteAddr, "error", err)
		http.Error(w, "not authenticated", http.StatusUnauthorized)
		return
	}
	if !h.admit() {
		turnAway(w)
		return
	}
	conn, err := socket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Subprotocol},
		OriginPatterns:     h.cfg.Origins,
		InsecureSkipVerify: h.cfg.AnyOrigin,
	}, h.cfg.MaxFrame, nil)
	if err != nil { // Accept has answered
		h.dismiss(nil)
		h.cfg.refusals.Info("no upgrade", "remote", r.RemoteAddr, "error", err)
		return
	}
	// The request's context may end with the server; the session ends by itself or by Drain.
	h.start(context.WithoutCancel(r.Context()), newSession(&h.cfg, h.gateway, actor, conn))
}

func offers(r *http.Request, subprotocol string) bool {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for token := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(token) == subprotocol {
				return true
			}
		}
	}
	return false
}

func turnAway(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "this gateway takes no more clients; try another one", http.StatusServiceUnavailable)
}

// admit counts a client in before its handshake, so that MaxClients holds when many come at once; false if no other
// client may connect. It is paired with dismiss.
func (h *Handler) admit() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining || h.admitted >= h.cfg.MaxClients {
		return false
	}
	h.admitted++
	h.served.Add(1)
	return true
}

// dismiss counts a client out, whose session, if it began one, is s.
func (h *Handler) dismiss(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	h.admitted--
	h.served.Done()
}

// start serves an admitted client in a goroutine of its own, so that the server's buffers and the request are freed. If
// Drain began during the handshake, the client is sent away at once.
func (h *Handler) start(ctx context.Context, s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	serve := s.serve
	if h.draining {
		serve = func(context.Context) {
			s.leave(goingAway)
			s.cut()
		}
	} else {
		h.sessions[s] = struct{}{}
	}
	go func() {
		serve(ctx)
		h.dismiss(s)
	}()
}

// Drain refuses new connections and new intents, finishes those under way, and closes each connection
// with status 1001 when it has none left. It returns when all have ended. If ctx ends before, the other connections are
// cut, although their intents are still finished, and the error is ctx's. Drain cannot be undone. It may be called
// again.
func (h *Handler) Drain(ctx context.Context) error {
	h.mu.Lock()
	h.draining = true
	for s := range h.sessions {
		s.drain()
	}
	h.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		h.served.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	for s := range h.sessions {
		s.cut()
	}
	h.mu.Unlock()
	return errors.Join(errors.New("gatewayws: drain was cut short"), context.Cause(ctx))
}
