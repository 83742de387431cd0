package matchhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/relay/session"
)

// Protocol is the WebSocket subprotocol of a ticket.
const Protocol = "tilefence.ticket.v1"

const (
	maxBody     = 16 << 10        // bytes: a request with the tokens of a party
	writeWithin = 5 * time.Second // of one message, to a client that may have gone
)

// Lobby is what a Handler asks. A *match.Lobby is one.
type Lobby interface {
	Enqueue(ctx context.Context, queue string, t match.Ticket) (match.Status, error)
	Status(ctx context.Context, queue, ticket string) (match.Status, error)
	Cancel(ctx context.Context, queue, ticket string) (match.Status, error)
	Watch(ctx context.Context, queue, ticket string, f func(match.Status) bool) error
}

// Config is optional, and so is each of its fields.
type Config struct {
	// Rate completes a ticket before it is enqueued: a game knows its players' rating, and their attributes and roles.
	// It gets the rating that the client sent. Nil: the client is believed, which is for games without a ranking.
	Rate func(ctx context.Context, t *match.Ticket) error

	// Friend verifies the token of another player of the party. Nil: a ticket has one player, and friends are refused.
	Friend func(token string) (session.Identity, error)

	// Token makes what a player shows at the gateway for a seat of a ticket, such as session.Keys.Sign of an identity
	// whose Value is the ticket. Nil: seated tickets show no token.
	Token func(actor, ticket string) (string, error)

	// Leave gives the seats of a ticket back. An error of match.ErrLapsed says that there are none. Nil: the route is
	// not served, and the game's tiles give seats back.
	Leave func(ctx context.Context, s match.Status) error
}

// Request is the body of a PUT.
type Request struct {
	Friends []string `json:"friends,omitempty"` // tokens of the other players of the party
	Rating  int      `json:"rating"`
}

// Ticket is a ticket as one of its players sees it. Tile and what follows it are those of a seated ticket.
type Ticket struct {
	ID       string       `json:"id"`
	State    string       `json:"state"`         // match.State's name
	WaitedMs int64        `json:"waited_ms"`     // until it was matched or ended
	Why      string       `json:"why,omitempty"` // it has no match yet
	Tile     fence.TileID `json:"tile,omitempty"`
	Gateway  string       `json:"gateway,omitempty"` // "gateway" and "relay" of the tile's Offer.Info
	Relay    string       `json:"relay,omitempty"`
	Seats    []int        `json:"seats,omitempty"`
	TakeBy   int64        `json:"take_by,omitempty"` // milliseconds since 1970: later the seats are gone
	Token    string       `json:"token,omitempty"`   // for the gateway, of the player who asks
}

// Handler serves the tickets of one queue. It is safe for concurrent use.
type Handler struct {
	lobby        Lobby
	queue        string
	authenticate session.AuthenticateFunc
	cfg          Config
	mux          http.Handler
}

// New returns a handler of the tickets of a queue of the lobby. authenticate is required: a stranger has no ticket. It
// does no I/O. Errors: a *fence.ArgumentError.
func New(lobby Lobby, queue string, authenticate session.AuthenticateFunc, cfg *Config) (*Handler, error) {
	switch {
	case lobby == nil:
		return nil, &fence.ArgumentError{Field: "lobby", Value: nil, Want: "a *match.Lobby"}
	case queue == "":
		return nil, &fence.ArgumentError{Field: "queue", Value: queue, Want: "the name of a queue of the lobby"}
	case authenticate == nil:
		return nil, &fence.ArgumentError{Field: "authenticate", Value: nil, Want: "a function, as session.Keys has"}
	}
	h := &Handler{lobby: lobby, queue: queue, authenticate: authenticate}
	if cfg != nil {
		h.cfg = *cfg
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /tickets/{id}", h.ask)
	mux.HandleFunc("GET /tickets/{id}", h.follow)
	mux.HandleFunc("DELETE /tickets/{id}", h.cancel)
	if h.cfg.Leave != nil {
		mux.HandleFunc("POST /tickets/{id}/leave", h.leave)
	}
	h.mux = http.NewCrossOriginProtection().Handler(mux)
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// player identifies the player who asks.
func (h *Handler) player(r *http.Request) (session.Identity, error) {
	who, err := h.authenticate(r)
	if err == nil && who.Actor == "" {
		err = session.ErrNoToken
	}
	return who, err
}

// own returns the player who asks, and a ticket of that player. A ticket of others is as unknown as one that there is
// not.
func (h *Handler) own(r *http.Request) (who session.Identity, s match.Status, err error) {
	if who, err = h.player(r); err != nil {
		return who, s, err
	}
	id := r.PathValue("id")
	s, err = h.lobby.Status(r.Context(), h.queue, id)
	if err == nil && !slices.ContainsFunc(s.Ticket.Players, func(p match.Player) bool { return p.ID == who.Actor }) {
		err = &match.DeniedError{Err: match.ErrUnknown, What: "ticket " + id}
	}
	return who, s, err
}

func (h *Handler) ask(w http.ResponseWriter, r *http.Request) {
	who, err := h.player(r)
	if err != nil {
		Refuse(w, err)
		return
	}
	t, err := h.ticket(w, r, who.Actor)
	var s match.Status
	if err == nil {
		s, err = h.lobby.Enqueue(r.Context(), h.queue, t)
	}
	h.answer(w, who.Actor, s, err)
}

// ticket reads the ticket that a request asks for.
func (h *Handler) ticket(w http.ResponseWriter, r *http.Request, actor string) (match.Ticket, error) {
	t := match.Ticket{ID: r.PathValue("id"), Players: []match.Player{{ID: actor}}, Source: gate.Source(r)}
	var in Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil {
		return t, &fence.ArgumentError{Field: "body", Value: err, Want: `{"rating":1500}`}
	}
	t.Rating = in.Rating
	if len(in.Friends) > 0 && h.cfg.Friend == nil {
		return t, &fence.ArgumentError{Field: "friends", Value: len(in.Friends),
			Want: "none: this lobby has no parties"}
	}
	for _, token := range in.Friends {
		friend, err := h.cfg.Friend(token)
		if err != nil {
			return t, err
		}
		t.Players = append(t.Players, match.Player{ID: friend.Actor})
	}
	if h.cfg.Rate == nil {
		return t, nil
	}
	return t, h.cfg.Rate(r.Context(), &t)
}

func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) {
	who, s, err := h.own(r)
	if err == nil {
		s, err = h.lobby.Cancel(r.Context(), h.queue, s.Ticket.ID)
	}
	h.answer(w, who.Actor, s, err)
}

func (h *Handler) leave(w http.ResponseWriter, r *http.Request) {
	who, s, err := h.own(r)
	if err == nil {
		err = h.cfg.Leave(r.Context(), s)
	}
	h.answer(w, who.Actor, s, err)
}

// follow serves a ticket once, or for as long as a WebSocket is open.
func (h *Handler) follow(w http.ResponseWriter, r *http.Request) {
	who, s, err := h.own(r)
	if err != nil || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		h.answer(w, who.Actor, s, err)
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Protocol}})
	if err != nil {
		return // it has been answered
	}
	defer func() { _ = c.CloseNow() }() // it may be closed already
	ctx := c.CloseRead(r.Context())
	if !who.Expires.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, who.Expires, session.ErrExpired)
		defer cancel()
	}
	err = h.lobby.Watch(ctx, h.queue, s.Ticket.ID, func(s match.Status) bool {
		bounded, cancel := context.WithTimeout(ctx, writeWithin)
		defer cancel()
		return wsjson.Write(bounded, c, h.view(s, who.Actor)) == nil
	})
	switch {
	case errors.Is(context.Cause(ctx), session.ErrExpired):
		_ = c.Close(statusExpired, "the session has expired") // the client may have gone, here and below
	case err == nil:
		_ = c.Close(websocket.StatusNormalClosure, "")
	case errors.Is(err, match.ErrCrowded): // of its players' other connections
		_ = c.Close(websocket.StatusTryAgainLater, match.ErrCrowded.Error())
	}
}

// statusExpired closes a WebSocket whose player's identity has expired, as relays and gateways do.
const statusExpired websocket.StatusCode = 4003

// view is a ticket as one of its players sees it.
func (h *Handler) view(s match.Status, actor string) Ticket {
	t := Ticket{ID: s.Ticket.ID, State: s.State.String(), WaitedMs: s.Waited.Milliseconds()}
	if s.State == match.Waiting || s.State == match.Claimed {
		t.Why = s.Why.String()
	}
	if a := s.Assignment; a != nil {
		t.Tile, t.Gateway, t.Relay = a.Tile, a.Info["gateway"], a.Info["relay"]
		t.Seats, t.TakeBy = a.Seats[t.ID], a.TakeBy.UnixMilli()
		if h.cfg.Token != nil {
			t.Token, _ = h.cfg.Token(actor, t.ID) // without one the gateway refuses the player, who asks again
		}
	}
	return t
}

// answer writes a ticket for one of its players, or why there is none.
func (h *Handler) answer(w http.ResponseWriter, actor string, s match.Status, err error) {
	if err != nil {
		Refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(h.view(s, actor)) // the client may have gone
}

// statuses are those of the classes of errors. Any other is 503: the outcome may be unknown, and the client asks again.
var statuses = []struct {
	class  error
	status int
}{
	{fence.ErrInvalidArgument, http.StatusBadRequest},
	{session.ErrToken, http.StatusUnauthorized},
	{match.ErrUnknown, http.StatusNotFound},
	{match.ErrReused, http.StatusConflict},
	{match.ErrOpen, http.StatusConflict},
	{match.ErrLapsed, http.StatusGone},
	{match.ErrCrowded, http.StatusTooManyRequests},
}

// Refuse answers a request with the status and the text of an error, as a Handler does: for routes that a game serves
// beside it.
func Refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	for _, s := range statuses {
		if errors.Is(err, s.class) {
			status = s.status
			break
		}
	}
	http.Error(w, err.Error(), status)
}
