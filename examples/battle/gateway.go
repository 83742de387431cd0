package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// energy is what cards cost. Everybody who joins is given some, once.
const (
	energy      = "energy"
	welcomeGift = 60
)

// startGateway runs the two doors and returns where the clients' WebSockets go. It routes by what the members
// have announced, then by the owner hashes, then by the redirects of hosts that were asked in vain.
func startGateway(c *crew, contact string, joins join, b *backends, m *meters, logger *slog.Logger) (handler http.Handler, stop func(), err error) {
	ledger, err := admission.New(b.ledger, nil)
	if err != nil {
		return nil, nil, err
	}
	table := new(route.Table)
	member, err := joins(contact, table, nil)
	if err != nil {
		return nil, nil, err
	}
	router, err := route.NewRouter(table, b.store, nil)
	if err != nil {
		return nil, nil, err
	}
	m.router.Store(router)
	tiles, err := tilehttp.NewClient(nil)
	if err != nil {
		return nil, nil, err
	}
	gateway, err := admission.NewGateway(ledger, router, tiles, &admission.GatewayConfig{Price: price, CheckMove: checkMove, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	// A real game would look at a session here; this one believes the name and greets it.
	authenticate := func(r *http.Request) (string, error) {
		actor := r.URL.Query().Get("actor")
		return actor, welcome(r.Context(), ledger, actor)
	}
	doors, err := gatewayws.New(gateway, authenticate, &gatewayws.Config{Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	leave := c.start("gateway's membership", member.Run)
	stopSweep := c.start("gateway", gateway.Run)
	return doors, func() {
		bounded, cancel := context.WithTimeout(c.ctx, 5*time.Second)
		defer cancel()
		if err := doors.Drain(bounded); err != nil {
			logger.Warn("clients were still waiting when the gateway ended", "err", err)
		}
		stopSweep()
		leave()
		tiles.Close()
	}, nil
}

// welcome gives a player his energy. The credit's ID makes it happen once, however often he joins.
func welcome(ctx context.Context, ledger *admission.AdmissionLedger, actor string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return ledger.Credit(ctx, actor, energy, welcomeGift, "welcome/"+actor)
}

// price decides what an action costs: never the client.
func price(_ context.Context, a admission.Action) (admission.Action, error) {
	o, err := game.DecodeOrder(a.Body)
	if err != nil {
		return a, err
	}
	if !o.Kind.Card() {
		return a, &fence.ArgumentError{Field: "body", Value: o.Kind, Want: "a card; movement goes through the other door"}
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

// door is a client's connection to the gateway, made again when it is lost. One goroutine uses it.
type door struct {
	url    string
	client *gatewayws.Client
}

func openDoor(ctx context.Context, url, actor string) (*door, error) {
	d := &door{url: url + "?actor=" + actor}
	return d, d.dial(ctx)
}

func (d *door) dial(ctx context.Context) error {
	client, err := gatewayws.Dial(ctx, d.url, nil)
	if err == nil {
		d.client = client
	}
	return err
}

func (d *door) close() { _ = d.client.Close() } // the battle is over

// do sends an order and waits for its outcome.
func (d *door) do(ctx context.Context, id fence.TileID, o orderAt) (stream.Outcome, error) {
	request := gatewayws.Request{Tile: id, Kind: admission.Move, Body: o.order.Encode()}
	if o.id != "" {
		request.Kind, request.Action = admission.Act, o.id
	}
	answer, err := d.client.Do(ctx, request)
	if errors.Is(err, gatewayws.ErrDisconnected) {
		_ = d.client.Close() // it has ended already
		if err := d.dial(ctx); err != nil {
			return 0, err
		}
		answer, err = d.client.Do(ctx, request)
	}
	return answer.Outcome, err
}
