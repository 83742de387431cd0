package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
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

// serveMetrics serves the figures of the report as they are now, as Prometheus reads them. A game would attach the
// library's hooks to the metrics it has.
func (p *plan) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	r := newReport(p)
	r.fill(p)
	text, err := json.Marshal(r)
	var figures map[string]any
	if err = errors.Join(err, json.Unmarshal(text, &figures)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	writeMetrics(w, "battle", figures)
}

func writeMetrics(w io.Writer, name string, value any) {
	switch v := value.(type) {
	case float64:
		fmt.Fprintf(w, "%s %v\n", name, v)
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			writeMetrics(w, name+"_"+key, v[key])
		}
	}
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
