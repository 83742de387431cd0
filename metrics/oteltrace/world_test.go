package oteltrace_test

import (
	"context"
	"net"
	"net/http"
	"time"

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

const square fence.TileID = 0x85283083fffffff

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// play runs the servers in this process until a player's actions have come back to a client that watches.
func (w *world) play(actions ...string) {
	ctx, stop := context.WithCancel(context.Background())
	ledger := must(sqliteledger.Open(ctx, ":memory:"))
	defer ledger.Close()
	store := memfence.New()
	b := tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Fanout: memfanout.New(), Durable: memcheckpoint.New(), Ledger: ledger, Workers: share.NewMemory(),
		Members: new(route.Group)}
	listen := func(web *tilefence.Web) string {
		web.Listener = must(net.Listen("tcp", "127.0.0.1:0"))
		return web.Listener.Addr().String()
	}
	w.tiles.Host.Tile.TickInterval = 20 * time.Millisecond
	player := func(*http.Request) (session.Identity, error) { return session.Identity{Actor: "ann"}, nil }
	price := func(_ context.Context, a admission.Action) (admission.Action, error) { return a, nil }
	mayWatch := func(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
	server := must(tilefence.NewTileServer(listen(&w.tiles.Web), b, newLamp, &w.tiles))
	gateway := must(tilefence.NewGatewayServer(listen(&w.gateway.Web), b, player, price, &w.gateway))
	relay := must(tilefence.NewRelayServer(listen(&w.relay.Web), b, mayWatch, &w.relay))
	bridge := must(tilefence.NewBridgeServer(b, &w.bridge))
	if err := server.Own(square); err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- tilefence.Run(ctx, gateway, server, bridge, relay) }()
	if err := server.Host().Await(ctx, square); err != nil {
		panic(err)
	}

	synced, events := make(chan bool), make(chan int, 100)
	w.client.Sync = func(s relayclient.Sync) { close(synced) }
	own := w.client.Frame
	w.client.Frame = func(e fence.Entry) {
		if own != nil {
			own(e)
		}
		events <- len(must(stream.DecodeBatch(&e)).Events)
	}
	watcher := must(relayclient.Dial(ctx, "ws://"+w.relay.Web.Listener.Addr().String(), &w.client))
	if err := watcher.Subscribe(ctx, square); err != nil {
		panic(err)
	}
	<-synced // so that batches come as frames
	client := must(gatewayws.Dial(ctx, "ws://"+w.gateway.Web.Listener.Addr().String(), nil))
	applied := map[string]bool{}
	for _, id := range actions {
		must(client.Do(ctx, gatewayws.Request{Tile: square, Kind: admission.Act, Action: id, Asset: "coin"}))
		for seen := 0; !applied[id] && seen == 0; {
			seen = <-events
		}
		applied[id] = true
	}
	_, _ = client.Close(), watcher.Close()
	stop()
	if err := <-ended; err != nil {
		panic(err)
	}
}

// lamp is a game in which everybody switches one lamp.
type lamp struct{ switched byte }

func newLamp(fence.TileID) (tile.Rules, error) { return &lamp{}, nil }

func (l *lamp) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for range intents {
		events, out = append(events, []byte("switch")), append(out, stream.Applied)
	}
	return events, out
}

func (l *lamp) Apply(_ fence.Tick, events [][]byte) error {
	l.switched += byte(len(events))
	return nil
}
func (l *lamp) Snapshot() ([]byte, error)     { return []byte{l.switched}, nil }
func (l *lamp) Restore(snapshot []byte) error { l.switched = append(snapshot, 0)[0]; return nil }
