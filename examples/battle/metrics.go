package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// reasons name why a commit did not succeed.
var reasons = []struct {
	err  error
	name string
}{
	{fence.ErrStale, "stale"}, {fence.ErrNoOwner, "no_owner"}, {fence.ErrBehind, "behind"}, {fence.ErrReplay, "replay"},
	{fence.ErrForked, "forked"}, {fence.ErrUnconfirmed, "unconfirmed"}, {fence.ErrUnknownOutcome, "unknown_outcome"}, {fence.ErrNotApplied, "not_applied"},
}

func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "other"
}

// serve writes the counters as Prometheus reads them. A game would hang the library's hooks on the metrics
// it has; here they are few enough to be written by hand.
func (m *meters) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
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
		{"reappended_total", "Batches put back after a failover had lost them.", m.reappended.Load()},
		{"snapshots_total", "Snapshots saved.", m.snapshots.Load()},
		{"checkpoints_total", "Snapshots made durable.", m.checkpoints.Load()},
	} {
		metric(w, c.name, c.help)
		fmt.Fprintf(w, "tilefence_%s %d\n", c.name, c.value)
	}
	metric(w, "refusals_total", "Commit attempts that did not succeed, by reason.")
	counts := m.refusedFor.snapshot()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "tilefence_refusals_total{reason=%q} %d\n", name, counts[name])
	}
	m.writeRouting(w)
}

func metric(w io.Writer, name, help string) {
	fmt.Fprintf(w, "# HELP tilefence_%s %s\n# TYPE tilefence_%s counter\n", name, help, name)
}
