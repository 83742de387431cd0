package main

import (
	"errors"
	"net/http"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
)

// Where the WebSockets are.
const (
	viewPath   = "/view"
	intentPath = "/intent"
)

// errNotConverged is a battle after which some client did not see what the owners decided.
var errNotConverged = errors.New("the views did not converge")

// pageHandler serves the spectator page, the relay, the gateway and the figures at one address. A nil gateway is
// served elsewhere.
func pageHandler(o *options, world []fence.TileID, t *tower, re, gateway http.Handler) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle(viewPath, re)
	mux.HandleFunc("GET /metrics", t.meters.serve)
	if gateway != nil {
		mux.Handle(intentPath, gateway)
	}
	if o.noPage {
		mux.Handle("/ownership", spectator.OwnershipHandler(t))
		return mux, nil
	}
	w, err := spectator.NewWorld(viewPath, o.tick, world...)
	if err != nil {
		return nil, err
	}
	page, err := spectator.Handler(w, t)
	if err != nil {
		return nil, err
	}
	mux.Handle("/", page)
	return mux, nil
}
