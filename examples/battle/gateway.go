package main

import (
	"context"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

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
