package tilefence_test

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// memory returns back ends within this process, but for the ledger, which is in a file.
func memory(ledger admission.Store) tilefence.Backends {
	store := memfence.New()
	return tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Fanout: memfanout.New(), Durable: memcheckpoint.New(), Ledger: ledger,
		Workers: share.NewMemory(), Members: new(route.Group)}
}

func port() net.Listener { return must(net.Listen("tcp", "127.0.0.1:0")) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A whole deployment in one process: a player's intent goes in at the gateway and comes out at a watcher.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	ledger := must(sqliteledger.Open(ctx, ":memory:"))
	defer ledger.Close()
	b := memory(ledger)

	tiles, gate, view := port(), port(), port()
	server := must(tilefence.NewTileServer(tiles.Addr().String(), b, newBell,
		&tilefence.TileServerConfig{Web: tilefence.Web{Listener: tiles}}))
	_ = server.Own(plaza)
	player := func(*http.Request) (session.Identity, error) { // a real game looks at a token
		return session.Identity{Actor: "ann"}, nil
	}
	price := func(_ context.Context, a admission.Action) (admission.Action, error) { return a, nil }
	gateway := must(tilefence.NewGatewayServer(gate.Addr().String(), b, player, price,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: gate}}))
	mayWatch := func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
	relay := must(tilefence.NewRelayServer(view.Addr().String(), b, mayWatch,
		&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: view}}))
	bridge := must(tilefence.NewBridgeServer(b, nil))
	checkpointer := must(tilefence.NewCheckpointServer(b, nil))
	ended := make(chan error)
	go func() { ended <- tilefence.Run(ctx, gateway, server, bridge, relay, checkpointer) }()
	_ = server.Host().Await(ctx, plaza)

	seen := make(chan string, 1)
	watcher := must(relayclient.Dial(ctx, "ws://"+view.Addr().String(), &relayclient.Config{
		Frame: func(e fence.Entry) {
			batch := must(stream.DecodeBatch(&e))
			seen <- fmt.Sprintf("tick %t, %d events", e.Tick > 0, len(batch.Events))
		},
	}))
	_ = watcher.Subscribe(ctx, plaza)
	client := must(gatewayws.Dial(ctx, "ws://"+gate.Addr().String(), nil))
	answer := must(client.Do(ctx, gatewayws.Request{Tile: plaza, Kind: admission.Move}))
	fmt.Println(answer.Outcome)
	fmt.Println(<-seen)

	_, _ = client.Close(), watcher.Close()
	stop()
	fmt.Println(<-ended)
	// Output:
	// applied
	// tick true, 1 events
	// <nil>
}

// A tile without an owner begins with its first intent, as long as the server has room.
func ExampleTileServerConfig_spawn() {
	ctx, stop := context.WithCancel(context.Background())
	l := port()
	server := must(tilefence.NewTileServer(l.Addr().String(), memory(nil), newBell, &tilefence.TileServerConfig{
		Web: tilefence.Web{Listener: l},
		Spawn: func(_ context.Context, r tilefence.SpawnRequest) error {
			if r.Tiles >= 1 {
				return tilefence.ErrFull
			}
			return nil
		},
	}))
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()

	fmt.Println(server.Submit(ctx, tile.Intent{Tile: plaza}))
	fmt.Println(server.Submit(ctx, tile.Intent{Tile: harbour}))
	stop()
	fmt.Println(<-ended)
	// Output:
	// applied <nil>
	// none tile server has no room for another tile: tile is overloaded
	// <nil>
}

// A server that stops hands its tiles to another, which follows them.
func ExampleTileServer() {
	b := memory(nil)
	serve := func() (server *tilefence.TileServer, stop func() error) {
		ctx, cancel := context.WithCancel(context.Background())
		l, ended := port(), make(chan error)
		server = must(tilefence.NewTileServer(l.Addr().String(), b, newBell,
			&tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}}))
		_ = server.Own(plaza) // or follow, if another server owns it
		go func() { ended <- server.Run(ctx) }()
		return server, func() error { cancel(); return <-ended }
	}
	north, stopNorth := serve()
	_ = north.Host().Await(context.Background(), plaza)
	south, stopSouth := serve()
	fmt.Println(stopNorth())
	_ = south.Host().Await(context.Background(), plaza)
	status, _ := south.Host().TileStatus(plaza)
	fmt.Println(status.State, status.Epoch)
	fmt.Println(stopSouth())
	// Output:
	// <nil>
	// serving 2
	// <nil>
}
