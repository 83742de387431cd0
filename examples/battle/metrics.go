package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

// reasons name why a commit did not succeed.
var reasons = []struct {
	err  error
	name string
}{
	{fence.ErrStale, "stale"}, {fence.ErrNoOwner, "no_owner"}, {fence.ErrBehind, "behind"},
	{fence.ErrReplay, "replay"}, {fence.ErrForked, "forked"}, {fence.ErrUnconfirmed, "unconfirmed"},
	{fence.ErrUnknownOutcome, "unknown_outcome"}, {fence.ErrNotApplied, "not_applied"},
}

func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "other"
}

// serve writes the counters as Prometheus reads them. A game would attach the library's hooks to the metrics it has;
// here they are few enough to be written by hand.
func (m *meters) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	head := func(name, help string) {
		fmt.Fprintf(w, "# HELP tilefence_%s %s\n# TYPE tilefence_%s counter\n", name, help, name)
	}
	for _, c := range []struct {
		name, help string
		value      int64
	}{
		{"ticks_total", "Ticks played.", m.ticks.Load()},
		{"commits_total", "Batches committed.", m.commits.Load()},
		{"refreshes_total", "Quiet ticks: the owner hash refreshed, nothing appended.", m.refreshes.Load()},
		{"events_total", "Game events committed.", m.events.Load()},
		{"ownership_changes_total", "Processors that became a tile's owner, the first one included.", m.installs.Load()},
		{"supersessions_total", "Processors that stood down for a successor.", m.supersessions.Load()},
		{"takeovers_total", "Attempts to take a tile from its owner.", m.takeovers.Load()},
		{"handovers_total", "Tiles handed over to even out the hosts' loads.", m.handovers.Load()},
		{"rebases_total", "Histories replaced by their owner's state.", m.rebases.Load()},
		{"lost_ticks_total", "Acknowledged ticks lost with the coordination store, at most.", m.lostTicks.Load()},
		{"reappended_total", "Batches re-appended after a failover had lost them.", m.reappended.Load()},
		{"snapshots_total", "Snapshots saved.", m.snapshots.Load()},
		{"checkpoints_total", "Snapshots made durable.", m.checkpoints.Load()},
	} {
		head(c.name, c.help)
		fmt.Fprintf(w, "tilefence_%s %d\n", c.name, c.value)
	}
	head("refusals_total", "Commit attempts that did not succeed, by reason.")
	counts := m.refusedFor.snapshot()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "tilefence_refusals_total{reason=%q} %d\n", name, counts[name])
	}
	r := m.routing()
	if r == nil {
		return
	}
	sources := map[route.Source]spectator.Source{
		route.SourceGossip: r.Gossip, route.SourceStore: r.Store, route.SourceRedirect: r.Redirect}
	head("route_answers_total", "Owners named to the gateway, by the source that named them.")
	for _, s := range slices.Sorted(maps.Keys(sources)) {
		fmt.Fprintf(w, "tilefence_route_answers_total{source=%q} %d\n", s, sources[s].Answers)
	}
	head("route_stale_total", "Owners named that turned out to be wrong, by source.")
	for _, s := range slices.Sorted(maps.Keys(sources)) {
		fmt.Fprintf(w, "tilefence_route_stale_total{source=%q} %d\n", s, sources[s].Stale)
	}
	head("route_failures_total", "Tiles for which no source named an owner.")
	fmt.Fprintf(w, "tilefence_route_failures_total %d\n", r.Failures)
}

// routing is how the gateway of this process has found the owners so far; nil without a gateway.
func (m *meters) routing() *spectator.Routing {
	router := m.router.Load()
	if router == nil {
		return nil
	}
	s := router.Stats()
	return &spectator.Routing{Gossip: spectator.Source(s.Gossip), Store: spectator.Source(s.Store),
		Redirect: spectator.Source(s.Redirect), StoreReads: s.StoreReads, Failures: s.Failures}
}
