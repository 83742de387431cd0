package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// Only operators, who have a token, see the tiles of a server.
func Example() {
	store := memfence.New()
	b := tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Fanout: memfanout.New(), Durable: memcheckpoint.New(), Members: new(route.Group)}
	noTiles := func(fence.TileID) (tile.Rules, error) { return nil, errors.New("no tiles yet") }
	server, err := tilefence.NewTileServer("10.0.0.7:7000", b, noTiles, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mayInspect := func(r *http.Request) error {
		if r.Header.Get("Authorization") != "Bearer operator" {
			return errors.New("not an operator")
		}
		return nil
	}
	page, err := inspect.New(server, b.Log, mayInspect, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	site := httptest.NewServer(page)
	defer site.Close()
	ask := func(token string) {
		client := &inspect.Client{URL: site.URL, Header: http.Header{"Authorization": {"Bearer " + token}}}
		seen, err := client.Tiles(context.Background())
		fmt.Println(seen.Contact, len(seen.Tiles), err != nil)
	}
	ask("operator")
	ask("player")
	// Output:
	// 10.0.0.7:7000 0 false
	//  0 true
}
