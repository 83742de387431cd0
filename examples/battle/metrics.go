package main

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/metrics/prommetrics"
)

// newMetrics are the library's metrics of this process.
func (p *plan) newMetrics() (err error) {
	p.registry = prometheus.NewRegistry()
	p.metrics, err = prommetrics.New(p.registry)
	return err
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
