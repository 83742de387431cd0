package tilehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// Submitter takes intents for tiles: a tile.TileProcessor, or something that holds several and answers a
// *tile.RedirectError for tiles it does not run. It must be safe for concurrent use, and honour ctx.
type Submitter interface {
	Submit(ctx context.Context, in tile.Intent) (tile.Result, error)
}

// SubmitterFunc is a Submitter of one function.
type SubmitterFunc func(ctx context.Context, in tile.Intent) (tile.Result, error)

// Submit calls f.
func (f SubmitterFunc) Submit(ctx context.Context, in tile.Intent) (tile.Result, error) {
	return f(ctx, in)
}

// HandlerConfig holds the optional settings of a Handler. Nil and the zero value are valid.
type HandlerConfig struct {
	// Keys prove gateways to this process, and it to them. Empty: every process that reaches the port is believed.
	Keys Keys
	// Contact is the one under which this process is known. With Keys, a call to another contact is refused: a
	// process between has passed it on. Empty: that is not checked.
	Contact string

	// Queue, if set, takes an intent without a goroutine that waits for it, as tile.TileProcessor.Queue and
	// tilehost.Host.Queue do. It is asked first; the Submitter gets what it did not queue. Nil: the Submitter gets all.
	Queue func(ctx context.Context, in tile.Intent, answered func(tile.Result, error)) error

	// Logger takes what an operator should read; of lines that strangers can cause, a sample. Nil discards.
	Logger   *slog.Logger
	refusals *slog.Logger

	tuning tuning
}

// Handler serves the intents that gateways send, over a connection each, to a Submitter, on whatever path it is
// mounted. It leaves it to the Submitter to validate them, as tilehost.Host and tile.TileProcessor do. If a gateway
// goes away, the contexts of its intents end; they may be resolved all the same. Create one with NewHandler. It is an
// http.Handler.
type Handler struct {
	tiles Submitter
	cfg   HandlerConfig

	mu       sync.Mutex
	draining bool
	sessions map[*session]struct{}
	served   sync.WaitGroup // sessions
}

// NewHandler returns a handler. It does no I/O and starts nothing. Errors: a *fence.ArgumentError.
func NewHandler(tiles Submitter, cfg *HandlerConfig) (*Handler, error) {
	if tiles == nil {
		return nil, &fence.ArgumentError{Field: "tiles", Value: nil, Want: "a Submitter, such as a tilehost.Host"}
	}
	c := setting.Of(cfg)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.refusals = sampled.Logger(c.Logger)
	c.tuning.withDefaults()
	if err := c.Keys.Validate(); err != nil {
		return nil, err
	}
	return &Handler{tiles: tiles, cfg: c, sessions: map[*session]struct{}{}}, nil
}

// ServeHTTP serves a gateway's connection until it ends.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "connect with the WebSocket subprotocol "+subprotocol, http.StatusMethodNotAllowed)
		return
	}
	keys := h.cfg.Keys
	var challenged string
	if len(keys) > 0 {
		var err error
		if challenged, err = keys.answer(h.cfg.Contact, r.Header, w.Header()); err != nil {
			h.stranger(w, r, err)
			return
		}
	}
	s := &session{h: h, ctx: context.WithoutCancel(r.Context())}
	s.room.L = &s.mu
	if !h.enter(s) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this tile server is going away", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(s)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}})
	if err != nil { // Accept has answered
		h.cfg.refusals.Info("no upgrade", "remote", r.RemoteAddr, "error", err)
		return
	}
	if conn.Subprotocol() != subprotocol {
		_ = conn.Close(websocket.StatusPolicyViolation, "connect with the subprotocol "+subprotocol)
		return
	}
	if len(keys) > 0 {
		limited, cancel := context.WithTimeout(s.ctx, h.cfg.tuning.WriteTimeout)
		err = keys.admit(limited, conn, r.Header, challenged)
		cancel()
		if err != nil {
			h.cfg.refusals.Warn("a gateway was refused", "remote", r.RemoteAddr, "error", err,
				"look_for", "other keys there: it hangs up if this server does not prove that it knows one of its own")
			_ = conn.Close(websocket.StatusPolicyViolation, "prove that you know a key of this deployment")
			return
		}
	}
	h.cfg.refusals.Info("gateway connected", "remote", r.RemoteAddr)
	err = s.run(newLink(conn, h.cfg.tuning.WriteTimeout, h.cfg.tuning.PingInterval))
	h.cfg.refusals.Info("gateway disconnected", "remote", r.RemoteAddr, "error", err)
}

// stranger answers a caller that proves nothing.
func (h *Handler) stranger(w http.ResponseWriter, r *http.Request, why error) {
	h.cfg.refusals.Warn("a gateway was refused", "remote", r.RemoteAddr, "error", why)
	http.Error(w, why.Error(), http.StatusUnauthorized)
}

func (h *Handler) enter(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return false
	}
	s.ctx, s.stop = context.WithCancelCause(s.ctx)
	h.sessions[s] = struct{}{}
	h.served.Add(1)
	return true
}

func (h *Handler) leave(s *session) {
	h.mu.Lock()
	delete(h.sessions, s)
	h.mu.Unlock()
	s.stop(nil)
	h.served.Done()
}

// Drain refuses new connections, and asks gateways to send no more intents on those that are there; what they have
// sent is still answered, and a gateway ends its connection with the last answer. It returns when all have ended. If
// ctx ends before, the other connections are cut, and the error is ctx's. Drain cannot be undone. It may be called
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
		s.stop(errCut)
	}
	h.mu.Unlock()
	h.served.Wait()
	return errors.Join(errCut, cut)
}

var errCut = errors.New("tilehttp: drain was cut short")

// fromProgram refuses what a page of another site can make a browser send: want is no type of a form.
func fromProgram(w http.ResponseWriter, r *http.Request, want string) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil || kind != want:
		http.Error(w, "send Content-Type "+want, http.StatusUnsupportedMediaType)
	case r.Header.Get("Origin") != "":
		http.Error(w, "not for browsers", http.StatusForbidden)
	default:
		return true
	}
	return false
}

// readBody reads a request of at most so many bytes. Its error is a *fence.ArgumentError.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &fence.ArgumentError{Field: "request", Value: "too long",
			Want: fmt.Sprint("at most ", most, " bytes")}
	}
	if err != nil {
		return nil, &fence.ArgumentError{Field: "request", Value: len(b), Want: "a whole body: " + err.Error()}
	}
	return b, nil
}

func reply(w http.ResponseWriter, status int, r any) {
	b := mustEncode(r)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client has gone; the outcome is in the stream
}
