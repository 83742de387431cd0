package gatewayws

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/session"
)

// Handler serves clients. Create one with New. It is an http.Handler.
type Handler struct {
	gateway Admitter
	moves   starter
	pool    *socket.WritePool // writes to all sessions
	gate    *gate.Gate
	cfg     Config

	mu         sync.Mutex
	draining   bool
	admitted   int // clients in their handshake and sessions
	sessions   map[*conn]struct{}
	byActor    map[string]map[*conn]struct{} // the same
	served     sync.WaitGroup                // what is admitted
	workerPool workerPool                    // of all sessions
}

// New returns a handler. authenticate names the actor of each connection. It does no I/O and starts nothing. Errors: a
// *fence.ArgumentError.
func New(gateway Admitter, authenticate session.AuthenticateFunc, cfg *Config) (*Handler, error) {
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
	named := func(r *http.Request) (session.Identity, error) {
		who, err := authenticate(r)
		if err == nil {
			err = admission.ValidateActor(who.Actor)
		}
		return who, err
	}
	d, err := gate.New(named, c.Sessions, c.MaxClients)
	if err != nil {
		return nil, err
	}
	moves, ok := gateway.(starter)
	if !ok {
		moves = waiting{gateway}
	}
	return &Handler{gateway: gateway, moves: moves, pool: socket.NewWritePool(), gate: d, cfg: c,
		sessions: map[*conn]struct{}{}, byActor: map[string]map[*conn]struct{}{}}, nil
}

// ServeHTTP upgrades the request. A connection that it has taken over belongs to the Handler: http.Server.Shutdown
// does not know of it, Drain ends it. It answers, in this order: 429 to one handshake or connection too many of an
// address; 400 to a request that does not ask for this subprotocol; 503 while draining, while it is late (Stats), and
// when MaxClients are in their handshakes; 4xx to one that is no handshake; 403 to a page of another origin; 401 if
// it is not authenticated, 503 if that takes too long; 429 to one connection too many of an actor; 503 when
// MaxClients are connected, unless one of an actor or address that holds more makes place. The body of each says why
// in a line. A browser does not show its page the last four, so a request with an Origin is upgraded and closed
// instead: with 4003 if a token has expired, 1013 for 503 and 429, otherwise 1008, and the same words.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sess, err := h.gate.Accept(r)
	if err != nil {
		h.cfg.refusals.Info("client refused", "remote", r.RemoteAddr, "error", err)
		gate.Answer(w, err)
		return
	}
	if !offers(r, Subprotocol) {
		sess.Close()
		http.Error(w, "connect with the WebSocket subprotocol "+Subprotocol, http.StatusBadRequest)
		return
	}
	after := h.cfg.turns.Full(time.Now(), overload.Join)
	if after > 0 || !h.admit() {
		sess.Close()
		turnAway(w, after)
		return
	}
	var refused error
	offer := socket.Offer{Subprotocol: Subprotocol, Origins: h.cfg.Origins, AnyOrigin: h.cfg.AnyOrigin}
	wire, err := socket.Accept(w, r, offer, maxFrame, nil, func() error {
		refused = sess.Identify(r)
		return refused
	})
	if err != nil {
		sess.Close()
		defer h.dismiss(nil)
		if refused != nil {
			h.cfg.refusals.Info("client refused", "remote", r.RemoteAddr, "error", refused)
			gate.Refuse(w, r, offer, refused)
			return
		}
		h.cfg.refusals.Info("no upgrade", "remote", r.RemoteAddr, "error", err)
		return
	}
	h.start(r, h.newConn(sess, wire))
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

func turnAway(w http.ResponseWriter, after time.Duration) {
	w.Header().Set("Retry-After", socket.RetryAfter(max(after, time.Second)))
	http.Error(w, "this gateway takes no more clients; try another one", http.StatusServiceUnavailable)
}

// admit counts a client in before its handshake; false while draining. It is paired with dismiss.
func (h *Handler) admit() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return false
	}
	if h.admitted == 0 {
		h.workerPool.hire()
	}
	h.admitted++
	h.served.Add(1)
	return true
}

// dismiss counts a client out, whose session, if it began one, is s.
func (h *Handler) dismiss(s *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, began := h.sessions[s]; began {
		delete(h.sessions, s)
		actor := s.sess.Actor()
		if delete(h.byActor[actor], s); len(h.byActor[actor]) == 0 {
			delete(h.byActor, actor)
		}
	}
	h.admitted--
	if h.admitted == 0 {
		h.workerPool.release()
	}
	h.served.Done()
}

// start serves an admitted client in a goroutine of its own, so that the server's buffers and the request are freed.
// The client is sent away at once if Drain began during the handshake, or if sessions were ended and the game does not
// let this one in any more.
func (h *Handler) start(r *http.Request, s *conn) {
	var away []byte
	err := s.sess.Register(r, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.draining {
			away = goingAway
			return
		}
		h.sessions[s] = struct{}{}
		actor := s.sess.Actor()
		if h.byActor[actor] == nil {
			h.byActor[actor] = map[*conn]struct{}{}
		}
		h.byActor[actor][s] = struct{}{}
	}, s.makePlace)
	if err != nil {
		h.cfg.refusals.Info("client ended", "remote", r.RemoteAddr, "error", err)
		away = socket.CloseFrame(CloseEnded, endedReason)
	}
	ctx := context.WithoutCancel(r.Context()) // it may end with the server; the session ends by itself or by Drain
	go func() {
		if away == nil {
			s.serve(ctx)
		} else {
			s.leave(away)
			s.work.Wait()
			s.cut()
		}
		s.sess.Close()
		h.dismiss(s)
	}()
}

// EndActor closes the connections of an actor with status 4004 and returns how many. Intents under way are finished. It
// does not keep the actor out: make the authentication refuse first. Of a handshake under way, it is asked again.
func (h *Handler) EndActor(actor string) int {
	return h.end(func(s *conn) bool { return s.sess.Actor() == actor })
}

// Tell sends a message of the game to the connections of an actor, and returns how many take it. It does not wait. A
// connection has room for 16 messages that its client has not read; one that has none takes no more.
func (h *Handler) Tell(actor string, message []byte) int {
	frame := messageFrame(message)
	h.mu.Lock()
	defer h.mu.Unlock()
	told := 0
	for s := range h.byActor[actor] {
		if s.tell(frame) {
			told++
		}
	}
	return told
}

// EndTile closes the connections whose last movement or action was for a tile, or whose player has gone to it since,
// likewise. It does not keep them from sending others: make Price and CheckMove refuse first.
func (h *Handler) EndTile(tile fence.TileID) int {
	return h.end(func(s *conn) bool { return fence.TileID(s.tile.Load()) == tile })
}

func (h *Handler) end(which func(*conn) bool) int {
	h.gate.Ending()
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := 0
	for s := range h.sessions {
		if which(s) && s.end(errEnded) {
			ended++
		}
	}
	return ended
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
	cut := wait.Group(ctx, &h.served)
	if cut == nil {
		return nil
	}
	h.mu.Lock()
	for s := range h.sessions {
		s.cut()
	}
	h.mu.Unlock()
	return errors.Join(errors.New("gatewayws: drain was cut short"), cut)
}
