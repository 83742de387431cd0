package admission_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// oneTile stands for the processes that run tiles: tilehttp.Client in earnest.
type oneTile struct{}

func (oneTile) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	return fence.Owner{Tile: id, Epoch: 1, Contact: "10.0.0.7:7000"}, nil
}

func (oneTile) Forward(_ context.Context, contact string, in tile.Intent) (tile.Result, error) {
	fmt.Printf("%s gets %q by %s\n", contact, in.Body, in.Actor)
	return tile.Result{Outcome: stream.Applied}, nil
}

func Example() {
	ctx := context.Background()
	store, err := sqliteledger.Open(ctx, sqliteledger.Memory)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	ledger, err := admission.New(store, nil)
	if err != nil {
		panic(err)
	}
	router, err := route.NewRouter(new(route.Table), oneTile{}, nil)
	if err != nil {
		panic(err)
	}
	gateway, err := admission.NewGateway(ledger, router, oneTile{}, price, nil)
	if err != nil {
		panic(err)
	}
	if err := ledger.Credit(ctx, "ann", "card:fireball", 1, "starter-deck/ann"); err != nil {
		panic(err)
	}

	play := admission.Action{ID: "0b54", Actor: "ann", Asset: "card:fireball", Cost: 1, Tile: 0x85283473fffffff,
		Body: []byte("fireball")}
	for range 2 { // the second call is a retry, and only reads the answer
		artifact, err := gateway.Act(ctx, play)
		if err != nil {
			panic(err)
		}
		fmt.Println(artifact.Outcome)
	}
	play.ID = "0b55" // another action: there is no card left
	artifact, err := gateway.Act(ctx, play)
	if err != nil {
		panic(err)
	}
	fmt.Println(artifact.Outcome, artifact.Reason)
	// Output:
	// 10.0.0.7:7000 gets "fireball" by ann
	// applied
	// applied
	// rejected balance
}

func ExampleAdmissionLedger() {
	ctx := context.Background()
	store, err := sqliteledger.Open(ctx, sqliteledger.Memory)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	ledger, err := admission.New(store, nil)
	if err != nil {
		panic(err)
	}
	_ = ledger.Credit(ctx, "ann", "gold", 10, "quest-17/ann")
	_ = ledger.Credit(ctx, "ann", "gold", 10, "quest-17/ann") // a retry mints nothing

	artifact, err := ledger.Admit(ctx, admission.Action{ID: "0b54", Actor: "ann", Asset: "gold", Cost: 4,
		Tile: 0x85283473fffffff})
	if err != nil {
		panic(err)
	}
	account, err := ledger.Balance(ctx, "ann", "gold")
	if err != nil {
		panic(err)
	}
	fmt.Println("open:", artifact.Open(), "balance:", account.Balance)

	artifact, err = ledger.Resolve(ctx, "0b54", stream.Applied)
	if err != nil {
		panic(err)
	}
	again, err := ledger.Resolve(ctx, "0b54", stream.Fizzled) // too late
	if err != nil {
		panic(err)
	}
	fmt.Println(artifact.Outcome, again.Outcome)
	// Output:
	// open: true balance: 6
	// applied applied
}

// price is what the game charges for an action: here one card, whatever the client says.
func price(_ context.Context, a admission.Action) (admission.Action, error) {
	a.Cost = 1
	return a, nil
}
