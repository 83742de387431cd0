package main

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/stream"
)

// newMetrics are the library's metrics of a process.
func newMetrics() (*prometheus.Registry, *prommetrics.Metrics, error) {
	registry := prometheus.NewRegistry()
	metrics, err := prommetrics.New(registry)
	return registry, metrics, err
}

func (p *plan) metricsHandler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{})
}

// totals are metrics as they are now, by their names without tilefence_: each over all values of its labels, and, with
// a slash and the value, for one value of a label. Of a histogram it is how many observations there were.
type totals map[string]float64

// totals reads the library's metrics of this process.
func (p *plan) totals() (totals, error) {
	families, err := p.registry.Gather()
	all := totals{}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "tilefence_")
		for _, m := range f.GetMetric() {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			all[name] += v
			for _, label := range m.GetLabel() {
				all[name+"/"+label.GetValue()] += v
			}
		}
	}
	return all, err
}

// count adds metrics up; nil if this process has none of them.
func (t totals) count(names ...string) *uint64 {
	var sum uint64
	found := false
	for _, name := range names {
		v, ok := t[name]
		sum, found = sum+uint64(v), found || ok
	}
	if !found {
		return nil
	}
	return &sum
}

// settled is how many actions the ledger has settled, by outcome; empty where no gateway is.
func (t totals) settled() map[string]uint64 {
	all := map[string]uint64{}
	for o := stream.Applied; o.Valid(); o++ {
		if n := t.count("admission_settles_total/" + o.String()); n != nil {
			all[o.String()] = *n
		}
	}
	return all
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
