package route_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
)

// A gateway routes by what owners announce, asks the store where it has heard nothing, and learns from the
// redirect of a process that has lost the tile.
func Example() {
	const here fence.TileID = 0x85283473fffffff
	ctx := context.Background()
	table := new(route.Table)
	router, err := route.NewRouter(table, memfence.New(), nil)
	if err != nil {
		panic(err)
	}
	ask := func() {
		contact, err := router.Route(ctx, here)
		fmt.Println(contact, err)
	}
	ask()
	table.Learn(route.Entry{Tile: here, Epoch: 11, Contact: "10.0.0.7:7000"}) // by gossip
	ask()
	// 10.0.0.7 answers that 10.0.0.8 owns the tile since epoch 12.
	router.Correct("10.0.0.7:7000", route.Entry{Tile: here, Epoch: 12, Contact: "10.0.0.8:7000"})
	ask()
	fmt.Printf("%+v\n", router.Stats().Gossip)
	// Output:
	//  tile 85283473fffffff: no route to the tile: it has no owner just now
	// 10.0.0.7:7000 <nil>
	// 10.0.0.8:7000 <nil>
	// {Answers:1 Stale:1}
}

// Two processes in one: what one announces, the other knows.
func ExampleGroup() {
	const here fence.TileID = 0x85283473fffffff
	ctx, leave := context.WithCancel(context.Background())
	var group route.Group
	heard := make(chan route.Event, 1)
	owner, err := group.NewMember("10.0.0.7:7000", new(route.Table), nil)
	if err != nil {
		panic(err)
	}
	table := new(route.Table)
	gateway, err := group.NewMember("10.0.0.9:8000", table, func(e route.Event) { heard <- e })
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- gateway.Run(ctx) }()
	go func() { ended <- owner.Run(ctx) }()
	fmt.Println((<-heard).Kind, "by the owner")

	if err := owner.Announce(route.Entry{Tile: here, Epoch: 3, Contact: "10.0.0.7:7000"}); err != nil {
		panic(err)
	}
	fmt.Println(table.Lookup(here))
	owner.Kill()
	e := <-heard
	fmt.Println(e.Member.Contact, e.Kind)
	leave()
	fmt.Println(<-ended, <-ended)
	// Output:
	// joined by the owner
	// {85283473fffffff 3 10.0.0.7:7000} true
	// 10.0.0.7:7000 died
	// <nil> <nil>
}
