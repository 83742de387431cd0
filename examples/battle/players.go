package main

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/relay/session"
)

// player says who asks for a connection to the gateway: by a signed token, whose value is the ticket of a player who
// comes through the lobby. Actors without a secret cannot know, and believe the query.
func (p *plan) player(r *http.Request) (session.Identity, error) {
	if p.options.secret == "" {
		return session.Identity{Actor: r.URL.Query().Get("actor")}, nil
	}
	return game.PlayerKeys(p.options.secret).Authenticate(r)
}

// watcher says who asks for a connection to the relay: anyone may watch, and a name needs its token.
func (p *plan) watcher(r *http.Request) (session.Identity, error) {
	if session.Token(r) == "" || p.options.secret == "" {
		return session.Identity{}, nil
	}
	return game.PlayerKeys(p.options.secret).Authenticate(r)
}

// token is a player's, for so long. This process is where players sign in.
func (p *plan) token(actor, ticket string, life time.Duration) (string, error) {
	who := session.Identity{Actor: actor, Expires: time.Now().Add(life)}
	if ticket != "" {
		who.Value = ticket
	}
	return game.PlayerKeys(p.options.secret).Sign(who)
}

// tokenFunc returns a token that is valid now.
type tokenFunc func(context.Context) (string, error)

// credentials are what a bot shows: a token, or without a secret its name in the URL.
func (p *plan) credentials(address, actor string) (string, tokenFunc) {
	if p.options.secret == "" {
		return address + "?" + url.Values{"actor": {actor}}.Encode(), nil
	}
	return address, func(context.Context) (string, error) { return p.token(actor, "", game.TokenLife) }
}
