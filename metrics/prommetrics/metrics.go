package prommetrics

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/fence"
)

// namespace begins every name.
const namespace = "tilefence"

// Metrics are the metrics of one process. It is a prometheus.Collector. Create one with New.
type Metrics struct {
	mu         sync.Mutex
	collectors []prometheus.Collector
	sources    []*source
	hooks      map[string]any // by package: what its hooks write to

	failures prometheus.Counter
}

// New returns metrics that registry serves. It has none until hooks or sources are added. Errors: a
// *fence.ArgumentError for a nil registry, and what Register says.
func New(registry prometheus.Registerer) (*Metrics, error) {
	if registry == nil {
		return nil, &fence.ArgumentError{Field: "registry", Value: nil, Want: "a prometheus.Registerer"}
	}
	m := &Metrics{hooks: map[string]any{}}
	m.failures = counter(m, "scrape_errors_total", "Sources that a scrape could not read, and left out.")
	return m, registry.Register(m)
}

// Describe implements prometheus.Collector. It describes nothing: metrics may be added at any time.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	collectors, sources := m.collectors, m.sources
	m.mu.Unlock()
	m.collectSources(sources, to)
	for _, c := range collectors {
		c.Collect(to)
	}
}

func (m *Metrics) add(c prometheus.Collector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collectors = append(m.collectors, c)
}

// once returns the metrics of a package's hooks, which all its instances in the process share.
func once[T any](m *Metrics, pkg string, create func(*Metrics) *T) *T {
	m.mu.Lock()
	made, ok := m.hooks[pkg].(*T)
	m.mu.Unlock()
	if ok {
		return made
	}
	fresh := &Metrics{hooks: map[string]any{}}
	made = create(fresh)
	m.mu.Lock()
	defer m.mu.Unlock()
	if earlier, ok := m.hooks[pkg].(*T); ok {
		return earlier
	}
	m.hooks[pkg] = made
	m.collectors = append(m.collectors, fresh.collectors...)
	return made
}

// Buckets of histograms. Those of durations are seconds.
var (
	// quick suits what happens within a tick of half a second.
	quick = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	// slow suits what takes seconds to minutes.
	slow = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	// long suits connections.
	long = []float64{1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
	// sizes are bytes, up to the bound of a stream.
	sizes = prometheus.ExponentialBuckets(256, 4, 9)
)

func counter(m *Metrics, name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.add(c)
	return c
}

func gauge(m *Metrics, name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	m.add(g)
	return g
}

func histogram(m *Metrics, name, help string, buckets []float64) prometheus.Observer {
	h := prometheus.NewHistogram(histogramOpts(name, help, buckets))
	m.add(h)
	return h
}

func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
}

// by is a metric for each value of a label that is known. All other values have one together.
type by[K comparable, M any] struct {
	known map[K]M
	other M
}

func (b *by[K, M]) of(value K) M {
	if m, ok := b.known[value]; ok {
		return m
	}
	return b.other
}

// counters are a counter for each value of a label.
func counters[K comparable](m *Metrics, name, help, label string, values ...K) by[K, prometheus.Counter] {
	v := prometheus.NewCounterVec(
		prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, []string{label})
	m.add(v)
	return resolve(values, v.WithLabelValues)
}

// histograms are a histogram for each value of a label.
func histograms[K comparable](
	m *Metrics, name, help string, buckets []float64, label string, values ...K,
) by[K, prometheus.Observer] {
	v := prometheus.NewHistogramVec(histogramOpts(name, help, buckets), []string{label})
	m.add(v)
	return resolve(values, v.WithLabelValues)
}

func resolve[K comparable, M any](values []K, with func(...string) M) by[K, M] {
	b := by[K, M]{known: make(map[K]M, len(values)), other: with("other")}
	for _, value := range values {
		b.known[value] = with(strings.ReplaceAll(fmt.Sprint(value), " ", "_"))
	}
	return b
}

func seconds(o prometheus.Observer, d time.Duration) { o.Observe(d.Seconds()) }

// addSome adds what is not zero: most ticks miss, restore and send nothing.
func addSome(c prometheus.Counter, n int) {
	if n > 0 {
		c.Add(float64(n))
	}
}
