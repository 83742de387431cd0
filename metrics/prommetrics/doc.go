// Package prommetrics shows what Tilefence does to Prometheus: one line for each server's hooks, one for the figures of
// all servers.
//
// # Usage
//
//	m, err := prommetrics.New(prometheus.DefaultRegisterer)
//	if err != nil {
//		return err
//	}
//	prommetrics.Attach(m, &cfg) // before the server is made; its own hooks are still called
//	server, err := tilefence.NewTileServer(contact, b, newRules, &cfg)
//	if err != nil {
//		return err
//	}
//	m.Servers(server, bridge) // their figures and their health, read when Prometheus asks
//	if err := prommetrics.Collect(m, broker, nil); err != nil { // the same for anything else that has Stats
//		return err
//	}
//	mux.Handle("/metrics", promhttp.Handler())
//
// Metrics come from two sources:
//
//	         hooks, as things happen            Stats, when Prometheus asks
//	tile loop ──▶ counters, histograms     servers ──▶ counters, gauges
//	                        └─────────▶ Metrics ◀───────────┘
//	                                       │
//	                                       ▼
//	                                   Prometheus
//
// Names are tilefence_<package>_<what>_<unit>, by the conventions of Prometheus: durations in seconds, sizes in bytes,
// and _total for what only grows. The metric of a Stats field is named for the field, and its help text is the field's
// comment. docs/metrics.md lists all. Alert rules are in deploy/prometheus, dashboards in deploy/grafana.
//
// # OpenTelemetry
//
// Programs that export by OpenTelemetry give the registry to its bridge for Prometheus,
// go.opentelemetry.io/contrib/bridges/prometheus, as a producer of their metric reader: see the example. Names and
// labels stay the same. Package metrics/oteltrace makes traces.
//
// # Guarantees
//
//   - Every hook and every field of every Stats has a metric, or a reason why not, which a test checks.
//   - No label has a tile, an actor, an address or an error's text: a process has a few hundred series, whatever the
//     game does. A value of a label that this package does not know counts as "other".
//   - A hook adds to counters and histograms that were looked up before: it takes no lock and allocates nothing.
//   - Figures of several sources of one type and the same labels are one metric: counts are added up, of durations the
//     longest counts, of times the earliest, and of states "not" if any is not.
//
// # Failures
//
// What cannot be read at a scrape, such as the queues of tile/plan while their Redis is away, is left out of it and
// counted in tilefence_scrape_errors_total. The other metrics are served.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine. Attach hooks before the servers that have them are made.
// Attaching one configuration twice counts everything twice.
package prommetrics
