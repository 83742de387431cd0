package gatewayws

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Defaults of Config and DialConfig.
const (
	defaultMaxFrame    = 16 << 10 // holds the largest intent: its body in base64, its names escaped
	defaultMaxInFlight = 32
)

// Admitter takes the intents of authenticated clients: an admission.Gateway.
type Admitter interface {
	Move(ctx context.Context, in tile.Intent) (stream.Outcome, error)
	Act(ctx context.Context, a admission.Action) (admission.Artifact, error)
}

// AuthenticateFunc says who asks for a connection, by its cookies or headers: an actor, 1 to 64 bytes of
// UTF-8. An error refuses the connection with status 401; its text is logged, not sent.
type AuthenticateFunc func(r *http.Request) (actor string, err error)

// Config holds the optional settings of a Handler. Nil and the zero value are valid.
type Config struct {
	// Origins are the hosts whose pages may connect, besides the server's own, as patterns of path.Match
	// ("*.example.com"), or with a scheme ("https://example.com"). Clients that are no browsers send no
	// origin and need no entry.
	Origins []string
	// AnyOrigin lets every page connect. Only where Authenticate does not look at cookies.
	AnyOrigin bool

	// MaxFrame is the most bytes of a message. Zero means 16 KiB, which holds the largest intent.
	MaxFrame int
	// MaxInFlight is how many intents of one connection may be under way. Zero means 32.
	MaxInFlight int

	// IntentTimeout bounds each intent from its frame to its answer. Zero means 15 s.
	IntentTimeout time.Duration
	// WriteTimeout is how long a client may take to accept an answer. Zero means 5 s.
	WriteTimeout time.Duration
	// PingInterval is how often a client is asked for a sign of life, which it must give within the same
	// time. Zero means 20 s.
	PingInterval time.Duration

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Hooks are called as things happen. Any may be nil. They must not block.
type Hooks struct {
	Opened   func(ConnInfo)   // a client is connected
	Closed   func(ConnInfo)   // and gone
	Answered func(AnswerInfo) // a frame was answered, or would have been
}

// ConnInfo describes a connection.
type ConnInfo struct {
	Actor string
	Open  time.Duration // zero when it opens
	Err   error         // why it ended
}

// AnswerInfo describes the answer to a frame.
type AnswerInfo struct {
	Actor   string
	Kind    admission.Kind // empty for a malformed frame
	Outcome stream.Outcome // zero with a code
	Code    Code           // empty with an outcome
	Took    time.Duration
}

func (c *Config) withDefaults() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	d.Origins = slices.Clone(d.Origins)
	d.MaxFrame = cmp.Or(d.MaxFrame, defaultMaxFrame)
	d.MaxInFlight = cmp.Or(d.MaxInFlight, defaultMaxInFlight)
	d.IntentTimeout = cmp.Or(d.IntentTimeout, 15*time.Second)
	d.WriteTimeout = cmp.Or(d.WriteTimeout, 5*time.Second)
	d.PingInterval = cmp.Or(d.PingInterval, 20*time.Second)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	if d.Hooks.Opened == nil {
		d.Hooks.Opened = func(ConnInfo) {}
	}
	if d.Hooks.Closed == nil {
		d.Hooks.Closed = func(ConnInfo) {}
	}
	if d.Hooks.Answered == nil {
		d.Hooks.Answered = func(AnswerInfo) {}
	}
	return d, d.validate()
}

// validate checks the settings after the defaults are in.
func (c *Config) validate() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"IntentTimeout", c.IntentTimeout}, {"WriteTimeout", c.WriteTimeout}, {"PingInterval", c.PingInterval}} {
		if d.value < time.Millisecond {
			return &fence.ArgumentError{Field: d.field, Value: d.value,
				Want: "at least a millisecond, or zero for the default"}
		}
	}
	switch {
	case c.MaxFrame < 256:
		return &fence.ArgumentError{Field: "MaxFrame", Value: c.MaxFrame,
			Want: "at least 256 bytes, or zero for the default"}
	case c.MaxInFlight < 1:
		return &fence.ArgumentError{Field: "MaxInFlight", Value: c.MaxInFlight,
			Want: "at least 1, or zero for the default"}
	}
	return nil
}

// Handler serves clients. Create one with New. It is an http.Handler.
type Handler struct {
	gateway      Admitter
	authenticate AuthenticateFunc
	cfg          Config

	mu       sync.Mutex
	draining bool
	sessions map[*session]struct{}
	served   sync.WaitGroup // sessions
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
			Want: "a function that says who a client is"}
	}
	return &Handler{gateway: gateway, authenticate: authenticate, cfg: c, sessions: map[*session]struct{}{}}, nil
}

// ServeHTTP upgrades the request and serves the connection until it ends and its intents are finished.
// Requests that are no upgrade to this subprotocol, or of another origin, or not authenticated, are
// answered with an HTTP error.
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
		h.cfg.Logger.Info("client refused", "remote", r.RemoteAddr, "error", err)
		http.Error(w, "not authenticated", http.StatusUnauthorized)
		return
	}
	s := &session{h: h, actor: actor, gone: make(chan struct{}),
		slots: make(chan struct{}, h.cfg.MaxInFlight), crew: make(chan struct{}, 2*h.cfg.MaxInFlight)}
	if !h.enter(s) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this gateway is going away", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(s)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Subprotocol},
		OriginPatterns:     h.cfg.Origins,
		InsecureSkipVerify: h.cfg.AnyOrigin,
	})
	if err != nil { // Accept has answered
		h.cfg.Logger.Info("no upgrade", "remote", r.RemoteAddr, "error", err)
		return
	}
	conn.SetReadLimit(int64(h.cfg.MaxFrame))
	// The request's context may end with the server; the session ends by itself or by Drain.
	s.serve(context.WithoutCancel(r.Context()), conn)
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

func (h *Handler) enter(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return false
	}
	h.sessions[s] = struct{}{}
	h.served.Add(1)
	return true
}

func (h *Handler) leave(s *session) {
	h.mu.Lock()
	delete(h.sessions, s)
	h.mu.Unlock()
	h.served.Done()
}

// Drain refuses new connections and new intents, finishes those under way, and closes each connection
// with status 1001 when it has none left. It returns when all are gone. If ctx ends before, the rest are
// cut off, though their intents still run to their ends, and the error is ctx's. A handler does not come
// back from it. It may be called again.
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
