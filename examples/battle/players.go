package main

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/pilots"
	"github.com/tilefence/tilefence/internal/benchmark/players"
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

// credentials are what a bot shows: a token, or without a secret its name in the URL.
func (p *plan) credentials(address, actor string) (string, players.TokenFunc) {
	if p.options.secret == "" {
		return address + "?" + url.Values{"actor": {actor}}.Encode(), nil
	}
	return address, func(context.Context) (string, error) { return p.token(actor, "", game.TokenLife) }
}

// playing is what bots of this process know of the battle, and report to.
func (p *plan) playing(relayURL, gatewayURL string) *players.Config {
	o, atHome := p.options, 0
	if o.command == "" {
		atHome = o.pilots * len(p.world) // whose planners know one tile each
	}
	return &players.Config{Relay: relayURL, Gateway: gatewayURL, Tick: o.tick, Seed: o.seed, DrawEvery: o.drawEvery,
		DealLater: o.dealLater, AtHome: atHome, HTTP: p.secure.Player(), Credentials: p.credentials,
		Owner:     p.ownerState,
		Delivered: p.meters.Tracker.Delivered, Fail: p.fail,
		Failed:   func(ctx context.Context) bool { return failed(ctx) != nil },
		Measures: p.meters.Players, Logger: p.logger}
}

// newFleet makes the bots of this process.
func (p *plan) newFleet(relayURL, gatewayURL string) (*players.Fleet, error) {
	players.WantFiles(p.errs, 2*p.options.clients)
	f, err := players.New(p.options.clients, p.world, p.playing(relayURL, gatewayURL))
	if err == nil {
		p.fleet.Store(f) // the page reads it while the battle begins
	}
	return f, err
}

// ownerState asks the tile's owner for its state, at the contact the owner hash names.
func (p *plan) ownerState(ctx context.Context, id fence.TileID) (players.OwnerState, error) {
	o, err := p.backends.Store.Owner(ctx, id)
	if err == nil && o.Contact == "" {
		err = fence.ErrNoOwner
	}
	if err != nil {
		return players.OwnerState{}, err
	}
	return players.ReadState(ctx, p.secure.Actor(), p.secure.URL("http", o.Contact), id)
}

// newPilots makes planners for some ships of each tile, whose bots fly them too.
func (d *deployment) newPilots() *pilots.Pilots {
	ships := map[fence.TileID][]string{}
	for i := range min(d.options.pilots*len(d.world), d.options.clients) {
		id := d.world[i%len(d.world)]
		ships[id] = append(ships[id], players.Name(i))
	}
	return pilots.New(&pilots.Config{Tiles: d.world, Ships: ships, Seed: d.options.seed,
		Backends: d.backends.Backends, Start: d.start, Fail: d.fail, Logger: d.logger,
		Hosts: func() (all []pilots.Host) {
			for _, h := range d.hosts.all() {
				all = append(all, h)
			}
			return all
		}})
}
