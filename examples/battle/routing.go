package main

import (
	"fmt"
	"io"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence/route"
)

// routing is how the gateway of this process has found the owners so far; nil without a gateway.
func (m *meters) routing() *spectator.Routing {
	router := m.router.Load()
	if router == nil {
		return nil
	}
	s := router.Stats()
	return &spectator.Routing{Gossip: spectator.Rung(s.Gossip), Store: spectator.Rung(s.Store), Redirect: spectator.Rung(s.Redirect),
		StoreReads: s.StoreReads, Failures: s.Failures}
}

// writeRouting is the gateway's part of the metrics.
func (m *meters) writeRouting(w io.Writer) {
	r := m.routing()
	if r == nil {
		return
	}
	rungs := []struct {
		name route.Rung
		spectator.Rung
	}{{route.RungGossip, r.Gossip}, {route.RungStore, r.Store}, {route.RungRedirect, r.Redirect}}
	metric(w, "route_answers_total", "Owners named to the gateway, by the rung of the ladder that knew.")
	for _, rung := range rungs {
		fmt.Fprintf(w, "tilefence_route_answers_total{rung=%q} %d\n", rung.name, rung.Answers)
	}
	metric(w, "route_stale_total", "Owners named that turned out to be wrong, by rung.")
	for _, rung := range rungs {
		fmt.Fprintf(w, "tilefence_route_stale_total{rung=%q} %d\n", rung.name, rung.Stale)
	}
	metric(w, "route_failures_total", "Tiles whose owner nobody could name.")
	fmt.Fprintf(w, "tilefence_route_failures_total %d\n", r.Failures)
}
