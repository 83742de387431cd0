package prommetrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/tile"
)

// OpenTelemetry reads the same registry. In production the reader is a metric.NewPeriodicReader with the exporter of
// your choice, and the same option.
func Example_openTelemetry() {
	registry := prometheus.NewRegistry()
	m := must(prommetrics.New(registry))
	var hooks tile.Hooks
	m.Tile(&hooks)

	reader := metric.NewManualReader(metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(registry))))
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	defer func() { _ = provider.Shutdown(context.Background()) }()

	hooks.Quarantined(&tile.QuarantinedError{})
	var read metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &read); err != nil {
		fmt.Println(err)
	}
	for _, scope := range read.ScopeMetrics {
		for _, one := range scope.Metrics {
			if sum, ok := one.Data.(metricdata.Sum[float64]); ok && one.Name == "tilefence_tile_quarantines_total" {
				fmt.Println(one.Name, sum.DataPoints[0].Value, sum.IsMonotonic)
			}
		}
	}
	// Output: tilefence_tile_quarantines_total 1 true
}
