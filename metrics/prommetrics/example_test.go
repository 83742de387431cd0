package prommetrics_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// A tile server and a bridge whose metrics are served.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	store, broker := memfence.New(), memfanout.New()
	b := tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store), Fanout: broker,
		Durable: memcheckpoint.New(), Workers: share.NewMemory(), Members: new(route.Group)}

	registry := prometheus.NewRegistry()
	m := must(prommetrics.New(registry))
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	tiles := tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}}
	prommetrics.Attach(m, &tiles)
	server := must(tilefence.NewTileServer(l.Addr().String(), b, newLamp, &tiles))
	var forwarding tilefence.BridgeServerConfig
	prommetrics.Attach(m, &forwarding)
	bridge := must(tilefence.NewBridgeServer(b, &forwarding))
	m.Servers(server, bridge)
	fmt.Println(prommetrics.Collect(m, broker, nil))

	const square fence.TileID = 0x85283083fffffff
	_ = server.Own(square)
	ended := make(chan error)
	go func() { ended <- tilefence.Run(ctx, server, bridge) }()
	_ = server.Host().Await(ctx, square)
	fmt.Println(server.Submit(ctx, tile.Intent{Tile: square}))

	const committed = `tilefence_tile_commit_seconds_count{durability="checkpointed"}`
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	page := httptest.NewRecorder()
	for !strings.Contains(page.Body.String(), committed+" 1") { // the hook runs beside the answer
		page = httptest.NewRecorder()
		handler.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
	lines := bufio.NewScanner(page.Body)
	for lines.Scan() {
		for _, shown := range []string{committed, `tilefence_tilehost_tiles{state="serving"}`,
			`tilefence_problems{plane="ticks"}`} {
			if strings.HasPrefix(lines.Text(), shown) {
				fmt.Println(lines.Text())
			}
		}
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// <nil>
	// applied <nil>
	// tilefence_problems{plane="ticks"} 0
	// tilefence_tile_commit_seconds_count{durability="checkpointed"} 1
	// tilefence_tilehost_tiles{state="serving"} 1
	// <nil>
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// lamp is a game in which everybody switches one lamp.
type lamp struct{ switched byte }

func newLamp(fence.TileID) (tile.Rules, error) { return &lamp{}, nil }

func (l *lamp) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for range intents {
		events, out = append(events, []byte("switch")), append(out, stream.Applied)
	}
	return events, out
}

func (l *lamp) Apply(_ fence.Tick, events [][]byte) error {
	l.switched += byte(len(events))
	return nil
}
func (l *lamp) Snapshot() ([]byte, error)     { return []byte{l.switched}, nil }
func (l *lamp) Restore(snapshot []byte) error { l.switched = append(snapshot, 0)[0]; return nil }

// OpenTelemetry reads the same registry. In production the reader is a metric.NewPeriodicReader with the exporter of
// your choice, and the same option.
func Example_openTelemetry() {
	registry := prometheus.NewRegistry()
	m := must(prommetrics.New(registry))
	var hooks tile.Hooks
	prommetrics.Attach(m, &hooks)

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
