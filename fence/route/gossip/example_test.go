package gossip_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
)

// A game server announces the tile it owns; a gateway hears of it, and that the server has left.
func Example() {
	const here fence.TileID = 0x85283473fffffff
	gatewayTable, happened := new(route.Table), make(chan route.Event, 8)
	gateway, err := gossip.New("10.0.0.9:8000", gatewayTable, &gossip.Config{
		Bind: "127.0.0.1:0", Timing: gossip.Fast(), Notify: func(e route.Event) { happened <- e },
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- gateway.Run(ctx) }()
	<-gateway.Ready()

	server, err := gossip.New("10.0.0.7:7000", new(route.Table), &gossip.Config{
		Bind: "127.0.0.1:0", Seeds: []string{gateway.Addr()}, Timing: gossip.Fast(),
	})
	if err != nil {
		panic(err)
	}
	if err := server.Announce(route.Entry{Tile: here, Epoch: 12, Contact: "10.0.0.7:7000"}); err != nil {
		panic(err)
	}
	serving, drain := context.WithCancel(ctx)
	go func() { ended <- server.Run(serving) }()

	e := <-happened
	fmt.Println(e.Member.Contact, e.Kind)
	drain()
	fmt.Println("drained:", <-ended)
	e = <-happened
	fmt.Println(e.Member.Contact, e.Kind)
	fmt.Println(gatewayTable.Lookup(here))

	stop()
	fmt.Println("stopped:", <-ended)
	// Output:
	// 10.0.0.7:7000 joined
	// drained: <nil>
	// 10.0.0.7:7000 left
	// {85283473fffffff 12 10.0.0.7:7000} true
	// stopped: <nil>
}
