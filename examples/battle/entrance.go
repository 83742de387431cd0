package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/matchhttp"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/relay/session"
)

// lobbyPath begins the addresses of the entrance.
const (
	lobbyPath  = "/lobby/"
	guestPath  = lobbyPath + "guests/"
	ticketPath = lobbyPath + "tickets/"
)

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

// entrance serves players who look for a match. Tickets are package matchhttp's. All requests but the first want the
// token of a guest:
//
//	POST /lobby/guests/NAME  signs a guest in: {"actor":"NAME-…","token":"…"}; with a token, renews that
//	     /lobby/tickets/ID   see package matchhttp
//
// Players take their seats by connecting to the gateway, each with the token that the seated ticket shows. Friends
// trust each other with their tokens: a game would have invitations. It would also know the rating of its players; this
// one believes it. The lobby asks for no password, as a game would: it only sees to it that a guest is the only one of
// that name.
func (l *lobby) entrance() (http.Handler, error) {
	keys := game.PlayerKeys(l.options.secret)
	tickets, err := matchhttp.New(l.census, l.queue.Name, l.player, &matchhttp.Config{Friend: keys.Verify,
		Leave: l.leave, Token: func(actor, ticket string) (string, error) {
			return l.token(actor, ticket, game.TokenLife)
		}})
	if err != nil {
		return nil, err
	}
	guests := http.NewServeMux()
	guests.HandleFunc("POST "+guestPath+"{name}", l.signIn)
	mux := http.NewServeMux()
	mux.Handle(guestPath, http.NewCrossOriginProtection().Handler(guests))
	mux.Handle(ticketPath, http.StripPrefix(strings.TrimSuffix(lobbyPath, "/"), tickets))
	return mux, nil
}

// signIn gives a guest a name of his own, or a new token for the one that he has.
func (l *lobby) signIn(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	guest := guestView{Actor: name + "-" + rand.Text()[:guestText]}
	if session.Token(r) != "" {
		who, err := l.player(r)
		if err != nil {
			matchhttp.Refuse(w, err)
			return
		}
		guest.Actor = who.Actor
	} else if err := guestName(name); err != nil {
		matchhttp.Refuse(w, err)
		return
	}
	var err error
	if guest.Token, err = l.token(guest.Actor, "", guestLife); err != nil {
		matchhttp.Refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(guest) // the client may have gone
}

// sit takes the seats of the ticket that a player's token has as its value. It may be repeated. A seat that another
// ticket has taken and not left ends the battle.
func (l *lobby) sit(ctx context.Context, who session.Identity) error {
	if err := l.enter(ctx, who); err != nil {
		return err
	}
	ticket := who.Value.(string)
	s, err := l.tickets.Status(ctx, l.queue.Name, ticket)
	if err == nil && s.Assignment != nil {
		if err = l.census.Sit(ticket, s.Assignment); err != nil {
			l.fail(err)
		}
	}
	return err
}

// leave gives the seats of a ticket back. It is an ErrLapsed if its players have not sat.
func (l *lobby) leave(ctx context.Context, s match.Status) error {
	if l.census.Rise(s.Ticket.ID) == nil {
		return &match.DeniedError{Err: match.ErrLapsed, What: "ticket " + s.Ticket.ID}
	}
	err := l.seats.Leave(ctx, s)
	if err == nil {
		l.census.Left(s.Ticket.ID, s.State)
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
