package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/metrics/prommetrics"
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

// totals reads the library's metrics of this process.
func (p *plan) totals() (statuspoller.Totals, error) { return statuspoller.ReadTotals(p.registry) }

// routing is how the gateway of this process has found the owners so far; nil without a gateway.
func (m *meters) routing() *statuspoller.Routing {
	gateway := m.gateway.Load()
	if gateway == nil {
		return nil
	}
	s := gateway.Stats().Router
	return &statuspoller.Routing{Gossip: statuspoller.Source(s.Gossip), Store: statuspoller.Source(s.Store),
		Redirect: statuspoller.Source(s.Redirect), StoreReads: s.StoreReads, Failures: s.Failures}
}
