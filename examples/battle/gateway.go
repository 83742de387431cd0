package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/tile"
)

// newGateway makes the gateway, which serves its figures too.
func (p *plan) newGateway(l net.Listener) (*tilefence.GatewayServer, error) {
	ledger, err := admission.New(p.backends.Ledger, nil)
	if err != nil {
		return nil, err
	}
	enter := func(ctx context.Context, who session.Identity) error {
		if p.lobby != nil && !strings.HasPrefix(who.Actor, players.Prefix) { // a player from the lobby takes the seat
			if err := p.lobby.sit(ctx, who); err != nil {
				return err
			}
		}
		return welcome(ctx, ledger, who.Actor)
	}
	doors := http.NewServeMux()
	control := doors
	if p.secure != nil {
		control = http.NewServeMux()
		if p.options.command != "" { // else the page of this process's relay has the same figures
			p.control = control
		}
	}
	cfg := tilefence.GatewayServerConfig{
		TLS: p.secure.Doors(), Web: tilefence.Web{Listener: l, Handler: func(own http.Handler) http.Handler {
			control.Handle("GET /metrics", p.metricsHandler())
			control.Handle("GET /livez", tilefence.LiveHandler(p.parts...))
			control.Handle("GET /readyz", tilefence.ReadyHandler(p.parts...))
			doors.Handle(intentPath, own)
			return doors
		}},
		Gateway:    admission.GatewayConfig{CheckMove: checkMove},
		Reconciler: admission.ReconcilerConfig{RememberFor: tile.DefaultRememberFor},
		// The page, which is on another port, may take a seat. No cookie says who a player is.
		// Thousands may come at once, and the ledger writes something for each.
		Clients: gatewayws.Config{MaxClients: 25000, AnyOrigin: true, Enter: enter,
			Sessions: session.Limits{Timeout: time.Minute}}, DecisionLog: p.decisions, Logger: p.logger}
	prommetrics.Attach(p.metrics, &cfg)
	s, err := tilefence.NewGatewayServer(l.Addr().String(), p.backends.Backends, p.player, price, &cfg)
	if err == nil {
		p.meters.Gateway.Store(s)
	}
	return s, err
}

// energy is what cards cost. Everybody who joins is given some, once.
const (
	energy      = "energy"
	welcomeGift = 60
)

// welcome gives a player his energy. The credit's ID makes it happen once, however often he joins.
func welcome(ctx context.Context, ledger *admission.AdmissionLedger, actor string) error {
	return ledger.Credit(ctx, actor, energy, welcomeGift, "welcome/"+actor)
}

// price decides what an action costs: never the client.
func price(_ context.Context, a admission.Action) (admission.Action, error) {
	o, err := game.DecodeOrder(a.Body)
	if err != nil {
		return a, err
	}
	if !o.Kind.Card() {
		return a, &fence.ArgumentError{Field: "body", Value: o.Kind, Want: "a card; moves take the other door"}
	}
	a.Asset, a.Cost = energy, admission.Amount(o.Kind.Cost())
	return a, nil
}

// checkMove lets nothing that costs through the free door.
func checkMove(_ context.Context, in tile.Intent) error {
	o, err := game.DecodeOrder(in.Body)
	if err == nil && o.Kind.Card() {
		err = &fence.ArgumentError{Field: "body", Value: o.Kind, Want: "a spawn or a move; cards are paid for"}
	}
	return err
}
