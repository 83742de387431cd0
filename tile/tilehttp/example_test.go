package tilehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

func Example() {
	const mine, other = 0x85283473fffffff, 0x85283477fffffff
	// A tile.TileProcessor in earnest, or something that holds several.
	tiles := tilehttp.SubmitterFunc(func(_ context.Context, in tile.Intent) (tile.Result, error) {
		if in.Tile != mine {
			return tile.Result{}, &tile.RedirectError{Tile: in.Tile, Epoch: 12, Contact: "10.0.0.8:7000"}
		}
		return tile.Result{Outcome: stream.Applied}, nil
	})
	intents, err := tilehttp.NewHandler(tiles, nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, intents)
	server := httptest.NewServer(mux)
	defer server.Close()

	client, err := tilehttp.NewClient(nil)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	contact := server.Listener.Addr().String()
	outcome, err := client.Forward(context.Background(), contact, tile.Intent{Tile: mine, Actor: "ann"})
	fmt.Println(outcome, err)

	_, err = client.Forward(context.Background(), contact, tile.Intent{Tile: other, Actor: "ann"})
	var moved *tile.RedirectError
	if errors.As(err, &moved) {
		fmt.Println("moved to", moved.Contact)
	}
	// Output:
	// applied <nil>
	// moved to 10.0.0.8:7000
}
