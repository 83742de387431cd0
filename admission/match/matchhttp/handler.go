package matchhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/relay/session"
)

// Protocol is the WebSocket subprotocol of a ticket.
const Protocol = "tilefence.ticket.v1"

// maxBody is the most bytes of a request, which may have the tokens of a party.
const maxBody = 16 << 10

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

	// Leave gives the seats of a ticket back, as Leave of a match.SeatAllocator does: when its players leave, and when
	// a seated ticket is cancelled. An error of match.ErrLapsed says that there are none. Nil: the route is not
	// served, and the game's tiles give seats back.
	Leave func(ctx context.Context, s match.Status) error

	// Sessions bound what an address or a player may take, and how long the authentication may. A request counts as a
	// connection for as long as it lasts.
	Sessions session.Limits

	// MaxClients is how many requests, WebSockets among them, are served at once; more are answered 503. Zero means
	// 10,000.
	MaxClients int
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
	lobby Lobby
	queue string
	gate  *gate.Gate
	cfg   Config
	mux   http.Handler
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
	h := &Handler{lobby: lobby, queue: queue, cfg: setting.Of(cfg)}
	var check setting.Check
	setting.Least(&check, 1, "MaxClients", &h.cfg.MaxClients, 10_000)
	if check.Err != nil {
		return nil, check.Err
	}
	named := func(r *http.Request) (session.Identity, error) {
		who, err := authenticate(r)
		if err == nil && who.Actor == "" {
			err = session.ErrNoToken
		}
		return who, err
	}
	var err error
	if h.gate, err = gate.New(named, h.cfg.Sessions, h.cfg.MaxClients); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /tickets/{id}", h.serve(h.ask))
	mux.HandleFunc("GET /tickets/{id}", h.follow)
	mux.HandleFunc("DELETE /tickets/{id}", h.serve(h.cancel))
	if h.cfg.Leave != nil {
		mux.HandleFunc("POST /tickets/{id}/leave", h.serve(h.leave))
	}
	h.mux = http.NewCrossOriginProtection().Handler(mux)
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// serve answers requests of players who are let in with the ticket that f returns.
func (h *Handler) serve(
	f func(w http.ResponseWriter, r *http.Request, actor string) (match.Status, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sess, err := h.gate.Accept(r)
		if err != nil {
			gate.Answer(w, err)
			return
		}
		defer sess.Close()
		if err := sess.Identify(r); err != nil {
			gate.Answer(w, err)
			return
		}
		s, err := f(w, r, sess.Actor())
		if err != nil {
			Refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.view(s, sess.Actor())) // the client may have gone
	}
}

// own returns a ticket of the player who asks. A ticket of others is as unknown as one that there is not.
func (h *Handler) own(_ http.ResponseWriter, r *http.Request, actor string) (match.Status, error) {
	return own(r.Context(), h.lobby, h.queue, r.PathValue("id"), actor)
}

func own(ctx context.Context, lobby Lobby, queue, ticket, actor string) (match.Status, error) {
	s, err := lobby.Status(ctx, queue, ticket)
	if err == nil && !s.Ticket.Has(actor) {
		err = &match.DeniedError{Err: match.ErrUnknown, What: "ticket " + ticket}
	}
	return s, err
}

func (h *Handler) ask(w http.ResponseWriter, r *http.Request, actor string) (match.Status, error) {
	t, err := h.ticket(w, r, actor)
	if err != nil {
		return match.Status{}, err
	}
	return h.lobby.Enqueue(r.Context(), h.queue, t)
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

func (h *Handler) cancel(w http.ResponseWriter, r *http.Request, actor string) (match.Status, error) {
	s, err := h.own(w, r, actor)
	if err == nil && s.Assignment != nil && h.cfg.Leave != nil {
		if err = h.cfg.Leave(r.Context(), s); errors.Is(err, match.ErrLapsed) {
			err = nil // the seats have gone back
		}
	}
	if err != nil {
		return s, err
	}
	return h.lobby.Cancel(r.Context(), h.queue, s.Ticket.ID)
}

func (h *Handler) leave(w http.ResponseWriter, r *http.Request, actor string) (match.Status, error) {
	s, err := h.own(w, r, actor)
	if err == nil {
		err = h.cfg.Leave(r.Context(), s)
	}
	return s, err
}

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
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if open := (*match.OpenError)(nil); errors.As(err, &open) {
		w.Header().Set("Location", "./"+open.Ticket) // beside the ticket that was asked for
	}
	http.Error(w, err.Error(), status)
}
