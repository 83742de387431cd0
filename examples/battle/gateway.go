package main

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// energy is what cards cost. Everybody who joins is given some, once.
const (
	energy      = "energy"
	welcomeGift = 60
)

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
