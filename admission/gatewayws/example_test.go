package gatewayws_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// someTile stands for the tiles and their owners.
type someTile struct{}

func (someTile) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	return fence.Owner{Tile: id, Epoch: 1, Contact: "10.0.0.7:7000"}, nil
}

func (someTile) Forward(context.Context, string, tile.Intent) (tile.Result, error) {
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
	router, err := route.NewRouter(new(route.Table), someTile{}, nil)
	if err != nil {
		panic(err)
	}
	gateway, err := admission.NewGateway(ledger, router, someTile{}, price, nil)
	if err != nil {
		panic(err)
	}
	if err := ledger.Credit(ctx, "ann", "card:fireball", 1, "starter-deck/ann"); err != nil {
		panic(err)
	}

	// A real gateway looks a session up.
	authenticate := func(r *http.Request) (session.Identity, error) {
		return session.Identity{Actor: r.Header.Get("X-Player")}, nil
	}
	handler, err := gatewayws.New(gateway, authenticate, nil)
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	defer func() { _ = handler.Drain(ctx) }()

	client, err := gatewayws.Dial(ctx, "ws"+strings.TrimPrefix(server.URL, "http"),
		&gatewayws.DialConfig{Header: http.Header{"X-Player": {"ann"}}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	for _, action := range []string{"0b54", "0b54", "0b55"} {
		answer, err := client.Do(ctx, gatewayws.Request{Tile: 0x85283473fffffff, Kind: admission.Act, Action: action,
			Asset: "card:fireball", Cost: 1})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %v %s\n", action, answer.Outcome, cmp.Or(answer.Reason.String(), "-"))
	}
	// Output:
	// 0b54: applied -
	// 0b54: applied -
	// 0b55: rejected balance
}

// price is what the game charges for an action: here one card, whatever the client says.
func price(_ context.Context, a admission.Action) (admission.Action, error) {
	a.Cost = 1
	return a, nil
}
