// Command shop is a game in which a player pays: one tile with two areas, of which a customer may see one, a class of
// durability, and an action that the ledger charges for. Its back ends are in the process: see examples/tileserver.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
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

const (
	plaza         fence.TileID = 0x85283083fffffff // an H3 cell of resolution 5
	counter, till fence.Area   = 1, 2              // customers see the counter, the keeper both
)

// shop is the game of one tile: how much was sold, as each area shows it. An event is the area of a sale.
type shop [3]int

// Resolve decides. What the gateway has charged comes as an action, with an ID; without one nothing was paid.
func (s *shop) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for _, in := range intents {
		outcome := stream.Rejected
		if in.ActionID != "" && string(in.Body) == "buy" {
			events, outcome = append(events, []byte{byte(counter)}, []byte{byte(till)}), stream.Applied
		}
		outcomes = append(outcomes, outcome)
	}
	return events, outcomes
}

// Area implements tile.Divided: a watcher of one area is not sent the other.
func (s *shop) Area(event []byte) fence.Area { return fence.Area(event[0]) }

// Apply changes the state, after the events were committed.
func (s *shop) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		s[e[0]]++
	}
	return nil
}

// Snapshot is a list of parts, one for each area.
func (s *shop) Snapshot() ([]byte, error) {
	list := fence.AppendPart(nil, counter, fmt.Append(nil, s[counter]))
	return fence.AppendPart(list, till, fmt.Append(nil, s[till])), nil
}

// Restore reads what Snapshot wrote; nil is a new shop.
func (s *shop) Restore(snapshot []byte) (err error) {
	*s = shop{}
	for part := range fence.Parts(snapshot) {
		_, bad := fmt.Sscan(string(part.Content), &s[part.Area])
		err = errors.Join(err, bad)
	}
	return err
}

// player says whose a connection is. A real game looks at a token (package session), not at what the client claims.
func player(r *http.Request) (session.Identity, error) {
	return session.Identity{Actor: cmp.Or(r.URL.Query().Get("player"), "stranger")}, nil
}

// charge says what an action costs. What the client says it costs is a wish.
func charge(_ context.Context, a admission.Action) (admission.Action, error) {
	if string(a.Body) != "buy" {
		return a, errors.New("that is not for sale")
	}
	a.Asset, a.Cost = "coin", 30
	return a, nil
}

// mayWatch lets customers see the counter, and the keeper everything. A client names its areas itself.
func mayWatch(_ context.Context, who session.Identity, _ fence.TileID, areas fence.AreaSet) error {
	if _, more := areas.Without(fence.Areas(counter)); more && who.Actor != "keeper" {
		return errors.New("the till is the keeper's")
	}
	return nil
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	ledger := must(sqliteledger.Open(ctx, ":memory:"))
	store := memfence.New()
	b := tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Fanout: memfanout.New(), Durable: memcheckpoint.New(), Ledger: ledger, Workers: share.NewMemory(),
		Members: new(route.Group)}

	newShop := func(fence.TileID) (tile.Rules, error) { return new(shop), nil }
	var tiles tilefence.TileServerConfig
	tiles.Host.Tile.Durability = tile.Replicated // a sale survives its owner and a Redis master together
	server := must(tilefence.NewTileServer("127.0.0.1:7071", b, newShop, &tiles))
	check(server.Own(plaza))
	var watchers tilefence.RelayServerConfig
	watchers.Relay.Authenticate = player
	ended := make(chan error, 1)
	go func() {
		ended <- tilefence.Run(ctx, must(tilefence.NewGatewayServer("127.0.0.1:7072", b, player, charge, nil)),
			server, must(tilefence.NewBridgeServer(b, nil)),
			must(tilefence.NewRelayServer("127.0.0.1:7073", b, mayWatch, &watchers)),
			must(tilefence.NewCheckpointServer(b, nil)))
	}()
	check(server.Host().Await(ctx, plaza))
	shopping(ctx, must(admission.New(ledger, nil)), "ws://127.0.0.1:7072", "ws://127.0.0.1:7073")
	stop()
	check(<-ended)
	check(ledger.Close())
}

// shopping plays a customer with 50 coins, who sends the first order twice and cannot pay the second, and shows what
// customer and keeper are sent.
func shopping(ctx context.Context, ledger *admission.AdmissionLedger, gateway, relay string) {
	check(ledger.Credit(ctx, "ann", "coin", 50, "welcome/ann")) // once, however often it is sent
	frames := make(chan string, 16)
	for who, areas := range map[string][]fence.Area{"ann": {counter}, "keeper": {counter, till}} {
		watcher := must(relayclient.Dial(ctx, relay+"?player="+who, &relayclient.Config{
			Frame: func(e fence.Entry) { frames <- fmt.Sprintf("%s was sent %d bytes", who, len(e.Payload)) }}))
		defer watcher.Close()
		check(watcher.Watch(ctx, plaza, areas...))
	}
	customer := must(gatewayws.Dial(ctx, gateway+"?player=ann", nil))
	defer customer.Close()
	for _, order := range []string{"order-1", "order-1", "order-2"} {
		buy := gatewayws.Request{Tile: plaza, Kind: admission.Act, Action: order, Body: []byte("buy")}
		answer, err := customer.Do(ctx, buy)
		fmt.Println(order, answer.Outcome, answer.Reason, err)
	}
	fmt.Printf("%s\n%s\nann has %d coins left\n", <-frames, <-frames, must(ledger.Balance(ctx, "ann", "coin")).Balance)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
