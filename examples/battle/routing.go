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
	return &spectator.Routing{Gossip: spectator.Source(s.Gossip), Store: spectator.Source(s.Store), Redirect: spectator.Source(s.Redirect),
		StoreReads: s.StoreReads, Failures: s.Failures}
}

// writeRouting is the gateway's part of the metrics.
func (m *meters) writeRouting(w io.Writer) {
	r := m.routing()
	if r == nil {
		return
	}
	sources := []struct {
		name route.Source
		spectator.Source
	}{{route.SourceGossip, r.Gossip}, {route.SourceStore, r.Store}, {route.SourceRedirect, r.Redirect}}
	metric(w, "route_answers_total", "Owners named to the gateway, by the source that named them.")
	for _, source := range sources {
		fmt.Fprintf(w, "tilefence_route_answers_total{source=%q} %d\n", source.name, source.Answers)
	}
	metric(w, "route_stale_total", "Owners named that turned out to be wrong, by source.")
	for _, source := range sources {
		fmt.Fprintf(w, "tilefence_route_stale_total{source=%q} %d\n", source.name, source.Stale)
	}
	metric(w, "route_failures_total", "Tiles whose owner nobody could name.")
	fmt.Fprintf(w, "tilefence_route_failures_total %d\n", r.Failures)
}
