package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/metrics/prommetrics"
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

// newMetrics are the library's metrics of this process, and the figures of the battle's own report as they are when
// they are asked for.
func (p *plan) newMetrics() (err error) {
	p.registry = prometheus.NewRegistry()
	if p.metrics, err = prommetrics.New(p.registry); err != nil {
		return err
	}
	return p.registry.Register(reportCollector{p})
}

func (p *plan) metricsHandler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{})
}

// reportCollector serves every number of the report.
type reportCollector struct{ *plan }

// Describe implements prometheus.Collector: what the report has is known when it is made.
func (c reportCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c reportCollector) Collect(to chan<- prometheus.Metric) {
	r := newReport(c.plan)
	r.fill(c.plan)
	text, err := json.Marshal(r)
	var figures map[string]any
	if err = errors.Join(err, json.Unmarshal(text, &figures)); err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewDesc("battle", "The report.", nil, nil), err)
		return
	}
	sendFigures(to, "battle", figures)
}

func sendFigures(to chan<- prometheus.Metric, name string, value any) {
	switch v := value.(type) {
	case float64:
		figure := prometheus.NewDesc(name, "A figure of the battle's report.", nil, nil)
		to <- prometheus.MustNewConstMetric(figure, prometheus.UntypedValue, v)
	case map[string]any:
		for key, inner := range v {
			sendFigures(to, name+"_"+key, inner)
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
