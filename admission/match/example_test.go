package match_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
)

// Two players ask for a match, get one, and take their seats.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := memmatch.New()
	queue := match.Queue{Name: "ranked-eu", Max: 2}
	seats, err := match.NewSeatAllocator(store, "eu", 0)
	if err != nil {
		panic(err)
	}
	lobby, err := match.NewLobby(store, queue)
	if err != nil {
		panic(err)
	}
	worker, err := match.NewWorker(store, seats, []match.Queue{queue}, nil)
	if err != nil {
		panic(err)
	}
	supervisor, err := match.NewSupervisor(store, seats, []match.Queue{queue}, nil)
	if err != nil {
		panic(err)
	}
	go func() { _ = worker.Run(ctx) }()
	go func() { _ = supervisor.Run(ctx) }()

	// The owner of a tile says that it serves, and repeats this before the minute has passed.
	if _, err := store.Offer(ctx, "eu", match.Offer{Tile: 0x85283473fffffff, Epoch: 7, Contact: "10.0.0.7:7000",
		Info: map[string]string{"relay": "wss://relay.example.com"}, Seats: 2}, time.Minute); err != nil {
		panic(err)
	}

	for i, player := range []string{"ann", "bob"} {
		if _, err := lobby.Enqueue(ctx, "ranked-eu", match.Ticket{ID: "ticket-" + player, Rating: 1500 + 20*i,
			Players: []match.Player{{ID: player}}}); err != nil {
			panic(err)
		}
	}
	for _, ticket := range []string{"ticket-ann", "ticket-bob"} {
		err := lobby.Watch(ctx, "ranked-eu", ticket, func(s match.Status) bool {
			if s.State != match.Seated {
				return true // wait on
			}
			a := s.Assignment
			fmt.Println(ticket, "plays on", a.Contact, "seats", a.Seats[ticket], a.Info["relay"])
			if err := store.Take(ctx, "eu", a.Match, ticket); err != nil { // the tile, when the player comes
				panic(err)
			}
			return false
		})
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// ticket-ann plays on 10.0.0.7:7000 seats [0] wss://relay.example.com
	// ticket-bob plays on 10.0.0.7:7000 seats [1] wss://relay.example.com
}

func ExampleForm() {
	queue := match.Queue{Name: "ranked-eu", Max: 2}
	var claimed []match.Candidate
	for i, rating := range []int{1500, 1540, 1700} {
		claimed = append(claimed, match.Candidate{Ticket: match.Ticket{ID: fmt.Sprint("t", i), Rating: rating,
			Players: []match.Player{{ID: fmt.Sprint("p", i)}}}})
	}
	matches, unmatched, err := match.Form(queue, claimed)
	if err != nil {
		panic(err)
	}
	fmt.Println(matches[0].Tickets[0].ID, matches[0].Tickets[1].ID, "spread", matches[0].Spread)
	fmt.Println(unmatched[0].Ticket, unmatched[0].Why.Reason)
	// Output:
	// t0 t1 spread 40
	// t2 players
}
