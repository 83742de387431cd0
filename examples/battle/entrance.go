package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
)

// lobbyPath begins the addresses of the entrance.
const lobbyPath = "/lobby/tickets/"

// ticketRequest is the body of a PUT. A game would know the rating of a session's players; this one believes it.
type ticketRequest struct {
	Players []string `json:"players"`
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

	Tokens map[string]string `json:"tokens,omitempty"` // for the gateway, by player
}

func (l *lobby) viewOf(s match.Status) ticketView {
	v := ticketView{ID: s.Ticket.ID, State: s.State.String(), WaitedMs: s.Waited.Milliseconds()}
	if s.State == match.Waiting || s.State == match.Claimed {
		v.Why = s.Why.String()
	}
	if a := s.Assignment; a != nil {
		v.Tile, v.Gateway, v.Relay = a.Tile, a.Info["gateway"], a.Info["relay"]
		v.Seats, v.TakeBy = a.Seats[v.ID], a.TakeBy.UnixMilli()
		v.Tokens = map[string]string{}
		for _, who := range s.Ticket.Players {
			if token, err := l.token(who.ID, v.ID); err == nil { // the lobby takes no names that it would fail for
				v.Tokens[who.ID] = token
			}
		}
	}
	return v
}

// entrance serves players who look for a match:
//
//	PUT    /lobby/tickets/ID        asks for one: {"players":["ann"],"rating":1500}. Repeat it until it is answered
//	GET    /lobby/tickets/ID        the ticket; as a WebSocket, the ticket now and after each change
//	DELETE /lobby/tickets/ID        cancels
//	POST   /lobby/tickets/ID/leave  the players have left their seats
//
// Players take their seats by connecting to the gateway with the tokens that a seated ticket has. The lobby signs
// players in by their word: a game would ask for a password here. The bots' names are taken.
func (l *lobby) entrance() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+lobbyPath+"{id}", l.ask)
	mux.HandleFunc("GET "+lobbyPath+"{id}", l.follow)
	mux.HandleFunc("DELETE "+lobbyPath+"{id}", func(w http.ResponseWriter, r *http.Request) {
		s, err := l.tickets.Cancel(r.Context(), l.queue.Name, r.PathValue("id"))
		l.answer(w, s, err)
	})
	mux.HandleFunc("POST "+lobbyPath+"{id}/leave", func(w http.ResponseWriter, r *http.Request) {
		s, err := l.leave(r.Context(), r.PathValue("id"))
		l.answer(w, s, err)
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

func (l *lobby) ask(w http.ResponseWriter, r *http.Request) {
	var in ticketRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<14)).Decode(&in); err != nil {
		err = &fence.ArgumentError{Field: "body", Value: err, Want: `{"players":["ann"],"rating":1500}`}
		l.answer(w, match.Status{}, err)
		return
	}
	t := match.Ticket{ID: r.PathValue("id"), Rating: in.Rating}
	for _, name := range in.Players {
		if err := guestName(name); err != nil {
			l.answer(w, match.Status{}, err)
			return
		}
		t.Players = append(t.Players, match.Player{ID: name})
	}
	s, err := l.book.enter(t.ID, func() (match.Status, error) {
		return l.tickets.Enqueue(r.Context(), l.queue.Name, t)
	})
	l.answer(w, s, err)
}

// follow serves a ticket once, or for as long as a WebSocket is open.
func (l *lobby) follow(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s, err := l.tickets.Status(r.Context(), l.queue.Name, id)
	if err != nil || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		l.answer(w, s, err)
		return
	}
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has been answered
	}
	defer func() { _ = c.CloseNow() }() // it may be closed already
	ctx := c.CloseRead(r.Context())
	err = l.tickets.Watch(ctx, l.queue.Name, id, func(s match.Status) bool {
		l.noted(s)
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return wsjson.Write(bounded, c, l.viewOf(s)) == nil
	})
	if err == nil {
		_ = c.Close(websocket.StatusNormalClosure, "")
	}
}

// answer writes a ticket, or why there is none.
func (l *lobby) answer(w http.ResponseWriter, s match.Status, err error) {
	if err != nil {
		status := http.StatusServiceUnavailable // and the outcome may be unknown: ask again
		for class, code := range map[error]int{fence.ErrInvalidArgument: http.StatusBadRequest,
			match.ErrUnknown: http.StatusNotFound, match.ErrReused: http.StatusConflict,
			match.ErrLapsed: http.StatusGone} {
			if errors.Is(err, class) {
				status = code
			}
		}
		http.Error(w, err.Error(), status)
		return
	}
	l.noted(s)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l.viewOf(s)) // the client may have gone
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

// sit takes the seats of a ticket whose players come. It may be repeated. A seat that another ticket has taken and
// not left ends the battle.
func (l *lobby) sit(ctx context.Context, ticket string) error {
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
func (l *lobby) leave(ctx context.Context, ticket string) (match.Status, error) {
	a := l.book.rise(ticket)
	if a == nil {
		return match.Status{}, &match.LapsedError{Match: "unknown", Ticket: ticket}
	}
	s, err := l.tickets.Status(ctx, l.queue.Name, ticket)
	if err == nil {
		err = l.store.Free(ctx, l.pool, a.Match, ticket)
	}
	if err == nil {
		l.book.left(ticket, s.State)
	}
	return s, err
}

// guestName refuses the names of bots, whose tokens the lobby must not give away.
func guestName(name string) error {
	if strings.HasPrefix(name, botPrefix) || !fence.IsName(name, session.MaxActor) {
		return &fence.ArgumentError{Field: "players", Value: name, Want: "another name"}
	}
	return nil
}
