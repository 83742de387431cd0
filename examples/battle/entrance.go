package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/relay/session"
)

// lobbyPath begins the addresses of the entrance.
const (
	lobbyPath  = "/lobby/"
	guestPath  = lobbyPath + "guests/"
	ticketPath = lobbyPath + "tickets/"
)

// ticketProtocol is the WebSocket subprotocol of a ticket: a browser that offers its token needs another one beside it.
const ticketProtocol = "tilefence.ticket.v1"

// A guest's name ends with random text that only the lobby chooses, so that no two guests have the same. guestLife is
// how long a guest may come back under it: longer than anybody plays.
const (
	guestText = 8
	guestLife = 12 * time.Hour
)

// guestView is a guest who has signed in.
type guestView struct {
	Actor string `json:"actor"`
	Token string `json:"token"` // for the lobby and the relay
}

// ticketRequest is the body of a PUT. The one who asks trusts his friends, and they him, with their tokens: a game
// would have invitations. It would also know the rating of its players; this one believes it.
type ticketRequest struct {
	Friends []string `json:"friends,omitempty"` // their tokens
	Rating  int      `json:"rating"`
}

// ticketView is a ticket as its players see it.
type ticketView struct {
	ID       string       `json:"id"`
	State    string       `json:"state"`          // match.State's name
	WaitedMs int64        `json:"waited_ms"`      // until it was matched or ended
	Why      string       `json:"why,omitempty"`  // it has no match yet
	Tile     fence.TileID `json:"tile,omitempty"` // this and the rest: of a ticket that has its seats
	Gateway  string       `json:"gateway,omitempty"`
	Relay    string       `json:"relay,omitempty"`
	Seats    []int        `json:"seats,omitempty"`
	TakeBy   int64        `json:"take_by,omitempty"` // milliseconds since 1970: later the seats are gone

	Token string `json:"token,omitempty"` // for the gateway, of the player who asks
}

// viewOf is a ticket as one of its players sees it.
func (l *lobby) viewOf(s match.Status, actor string) ticketView {
	v := ticketView{ID: s.Ticket.ID, State: s.State.String(), WaitedMs: s.Waited.Milliseconds()}
	if s.State == match.Waiting || s.State == match.Claimed {
		v.Why = s.Why.String()
	}
	if a := s.Assignment; a != nil {
		v.Tile, v.Gateway, v.Relay = a.Tile, a.Info["gateway"], a.Info["relay"]
		v.Seats, v.TakeBy = a.Seats[v.ID], a.TakeBy.UnixMilli()
		v.Token, _ = l.token(actor, v.ID, game.TokenLife) // it does not fail for who has shown a token
	}
	return v
}

// entrance serves players who look for a match. All but the first want the token of a guest: "Authorization: Bearer …",
// or for a WebSocket the subprotocol "tilefence.token.…" beside "tilefence.ticket.v1".
//
//	POST   /lobby/guests/NAME       signs a guest in: {"actor":"NAME-…","token":"…"}; with a token, renews that
//	PUT    /lobby/tickets/ID        asks for a match: {"rating":1500}. Repeat it until it is answered
//	GET    /lobby/tickets/ID        the ticket; as a WebSocket, the ticket now and after each change
//	DELETE /lobby/tickets/ID        cancels
//	POST   /lobby/tickets/ID/leave  the players have left their seats
//
// A player has one open ticket, an address a share of the queue, and a ticket a few followers (package match): a second
// ticket gets 409, one for which there is no room 429, and the oldest follower of too many is closed with 1013.
// A ticket is there for its players alone. They take their seats by connecting to the gateway, each with the token that
// the seated ticket shows him. The lobby asks for no password, as a game would: it only sees to it that who was a guest
// once is the only one of that name.
func (l *lobby) entrance() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+guestPath+"{name}", l.signIn)
	mux.HandleFunc("PUT "+ticketPath+"{id}", l.ask)
	mux.HandleFunc("GET "+ticketPath+"{id}", l.follow)
	mux.HandleFunc("DELETE "+ticketPath+"{id}", func(w http.ResponseWriter, r *http.Request) {
		actor, s, err := l.own(r)
		if err == nil {
			s, err = l.tickets.Cancel(r.Context(), l.queue.Name, s.Ticket.ID)
		}
		l.answer(w, actor, s, err)
	})
	mux.HandleFunc("POST "+ticketPath+"{id}/leave", func(w http.ResponseWriter, r *http.Request) {
		actor, s, err := l.own(r)
		if err == nil {
			err = l.leave(r.Context(), s)
		}
		l.answer(w, actor, s, err)
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

// signIn gives a guest a name of his own, or a new token for the one that he has.
func (l *lobby) signIn(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	guest := guestView{Actor: name + "-" + rand.Text()[:guestText]}
	if session.Token(r) != "" {
		who, err := l.player(r)
		if err != nil {
			refuse(w, err)
			return
		}
		guest.Actor = who.Actor
	} else if err := guestName(name); err != nil {
		refuse(w, err)
		return
	}
	var err error
	if guest.Token, err = l.token(guest.Actor, "", guestLife); err != nil {
		refuse(w, err)
		return
	}
	reply(w, guest)
}

// own returns who asks, and the ticket that he asks for. Of others' tickets he does not learn whether they exist.
func (l *lobby) own(r *http.Request) (actor string, s match.Status, err error) {
	who, err := l.player(r)
	if err != nil {
		return "", s, err
	}
	id := r.PathValue("id")
	s, err = l.tickets.Status(r.Context(), l.queue.Name, id)
	if err == nil && !slices.Contains(names(s.Ticket), who.Actor) {
		err = &match.UnknownError{What: "ticket", ID: id}
	}
	return who.Actor, s, err
}

func (l *lobby) ask(w http.ResponseWriter, r *http.Request) {
	who, err := l.player(r)
	if err != nil {
		refuse(w, err)
		return
	}
	var in ticketRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<14)).Decode(&in); err != nil {
		refuse(w, &fence.ArgumentError{Field: "body", Value: err, Want: `{"rating":1500}`})
		return
	}
	t := match.Ticket{ID: r.PathValue("id"), Rating: in.Rating, Players: []match.Player{{ID: who.Actor}},
		Source: gate.Source(r)}
	for _, token := range in.Friends {
		friend, err := game.PlayerKeys(l.options.secret).Verify(token)
		if err != nil {
			refuse(w, err)
			return
		}
		t.Players = append(t.Players, match.Player{ID: friend.Actor})
	}
	s, err := l.book.enter(t.ID, func() (match.Status, error) {
		return l.tickets.Enqueue(r.Context(), l.queue.Name, t)
	})
	l.answer(w, who.Actor, s, err)
}

// follow serves a ticket once, or for as long as a WebSocket is open.
func (l *lobby) follow(w http.ResponseWriter, r *http.Request) {
	actor, s, err := l.own(r)
	if err != nil || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		l.answer(w, actor, s, err)
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{ticketProtocol}})
	if err != nil {
		return // it has been answered
	}
	defer func() { _ = c.CloseNow() }() // it may be closed already
	ctx := c.CloseRead(r.Context())
	err = l.tickets.Watch(ctx, l.queue.Name, s.Ticket.ID, func(s match.Status) bool {
		l.noted(s)
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return wsjson.Write(bounded, c, l.viewOf(s, actor)) == nil
	})
	switch {
	case err == nil:
		_ = c.Close(websocket.StatusNormalClosure, "")
	case errors.Is(err, match.ErrCrowded): // of its player's other connections
		_ = c.Close(websocket.StatusTryAgainLater, match.ErrCrowded.Error())
	}
}

// answer writes a ticket for one of its players, or why there is none.
func (l *lobby) answer(w http.ResponseWriter, actor string, s match.Status, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	l.noted(s)
	reply(w, l.viewOf(s, actor))
}

// refuse writes why a request is not served.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable // and the outcome may be unknown: ask again
	for class, code := range map[error]int{fence.ErrInvalidArgument: http.StatusBadRequest,
		session.ErrToken: http.StatusUnauthorized, match.ErrUnknown: http.StatusNotFound,
		match.ErrReused: http.StatusConflict, match.ErrOpen: http.StatusConflict, match.ErrLapsed: http.StatusGone,
		match.ErrCrowded: http.StatusTooManyRequests} {
		if errors.Is(err, class) {
			status = code
		}
	}
	http.Error(w, err.Error(), status)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// noted keeps the figures of a ticket that is shown to its players.
func (l *lobby) noted(s match.Status) {
	switch {
	case s.State == match.Seated && l.book.seated(s.Ticket.ID, s.Match):
		l.waits.Record(s.Waited)
	case s.State.Terminal():
		l.book.end(s.Ticket.ID, s.State)
	}
}

// errNoSeat refuses a guest whom the lobby has signed in, and not yet seated.
var errNoSeat = errors.New("a guest has no seat before a ticket has one: use the token that the ticket shows then")

// sit takes the seats of the ticket that a player's token has as its value. It may be repeated. A seat that another
// ticket has taken and not left ends the battle.
func (l *lobby) sit(ctx context.Context, value any) error {
	ticket, ok := value.(string)
	if !ok {
		return errNoSeat
	}
	s, err := l.tickets.Status(ctx, l.queue.Name, ticket)
	if err != nil {
		return err
	}
	if s.Assignment == nil {
		return &match.LapsedError{Match: s.Match, Ticket: ticket}
	}
	if err := l.store.Take(ctx, l.pool, s.Match, ticket); err != nil {
		return err
	}
	if err := l.book.sit(ticket, s.Assignment); err != nil {
		l.fail(err)
		return err
	}
	return nil
}

// leave gives the seats of a ticket back. It is an ErrLapsed if its players have not sat.
func (l *lobby) leave(ctx context.Context, s match.Status) error {
	ticket := s.Ticket.ID
	a := l.book.rise(ticket)
	if a == nil {
		return &match.LapsedError{Match: "unknown", Ticket: ticket}
	}
	err := l.store.Free(ctx, l.pool, a.Match, ticket)
	if err == nil {
		l.book.left(ticket, s.State)
	}
	return err
}

// guestName refuses names that look like those of bots, and what no player's name can begin with.
func guestName(name string) error {
	if strings.HasPrefix(name, players.Prefix) || !fence.IsName(name, session.MaxActor-guestText-1) {
		return &fence.ArgumentError{Field: "name", Value: name, Want: "another name"}
	}
	return nil
}
