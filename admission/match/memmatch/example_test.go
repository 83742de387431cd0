package memmatch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
)

func ExampleNew() {
	ctx, store := context.Background(), memmatch.New()
	_, err := store.Enqueue(ctx, "ranked-eu/0", match.Ticket{ID: "t1", Rating: 1500,
		Players: []match.Player{{ID: "ann"}}}, match.Entry{})
	if err != nil {
		panic(err)
	}
	held, err := store.Claim(ctx, "ranked-eu/0", match.Claim{Worker: "w1", Lease: time.Minute, Limit: 100})
	if err != nil {
		panic(err)
	}
	status, err := store.Status(ctx, "ranked-eu/0", "t1")
	if err != nil {
		panic(err)
	}
	fmt.Println("epoch", held.Epoch, "holds", len(held.Tickets), "ticket:", status.State)
	// Output: epoch 1 holds 1 ticket: claimed
}
