package prommetrics

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// hooked are all types of hooks that there are metrics for.
var hooked = []func(m *Metrics) (hooks any){
	attached[tile.Hooks], attached[tilehost.Hooks], attached[bridge.Hooks], attached[relay.Hooks],
	attached[tiered.Hooks], attached[checkpoint.Hooks], attached[admission.Hooks], attached[gatewayws.Hooks],
	attached[match.Hooks], attached[viewcache.Hooks],
}

func attached[H Measurable](m *Metrics) any {
	h := new(H)
	Attach(m, h)
	return h
}

// figured are all types with figures that there are metrics for.
var figured = []figures{
	zero[admission.Stats](), zero[bridge.Stats](), zero[checkpoint.Stats](), zero[route.Stats](),
	zero[route.TableStats](), zero[gossip.Stats](), zero[relay.Stats](), zero[relayclient.Stats](),
	zero[viewcache.Stats](), zero[viewcache.Usage](), zero[fanout.HinterStats](), zero[memfanout.Stats](),
	zero[natsfanout.Stats](), zero[redisfanout.Stats](), zero[tiered.Stats](), zero[share.Stats]("group"),
	zero[plan.DeskStats](), zero[plan.WorkerStats](), zero[plan.Depth](), zero[tilehttp.Stats](),
	zero[gatewayws.Stats](),
	zero[match.Depth]("queue"), zero[tilehost.Stats](), zero[directory.Stats](),
	{reflect.TypeFor[hostStats](), func(m *Metrics, v any) error {
		own(m, "_tilehost", func() hostStats { return v.(hostStats) })
		return nil
	}},
	{reflect.TypeFor[healthStats](), func(m *Metrics, v any) error {
		own(m, "", func() healthStats { return v.(healthStats) })
		return nil
	}},
}

type figures struct {
	of      reflect.Type
	collect func(m *Metrics, value any) error
}

func zero[S any](labels ...string) figures {
	all := prometheus.Labels{}
	for _, name := range labels {
		all[name] = "one"
	}
	return figures{reflect.TypeFor[S](), func(m *Metrics, value any) error {
		return Read(m, func(context.Context) (S, error) { return value.(S), nil }, all)
	}}
}

// everything is a registry with every metric there is, all zero.
func everything(t testing.TB) *prometheus.Registry {
	registry, m := fresh(t)
	for _, attach := range hooked {
		attach(m)
	}
	for _, f := range figured {
		require.NoError(t, f.collect(m, reflect.Zero(f.of).Interface()))
	}
	return registry
}

func fresh(t testing.TB) (*prometheus.Registry, *Metrics) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := New(registry)
	require.NoError(t, err)
	return registry, m
}

func gather(t testing.TB, from prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	all, err := from.Gather()
	require.NoError(t, err)
	return all
}

// values are all series with their values; of histograms, the number of observations.
func values(t testing.TB, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, family := range gather(t, from) {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			id := family.GetName()
			if labels != nil {
				id += "{" + strings.Join(labels, ",") + "}"
			}
			all[id] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() +
				float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// Compile-time proof that what has Stats can be collected in one line.
var (
	_ = func(m *Metrics, d *plan.Desk) error { return Collect(m, d, nil) }
	_ = func(m *Metrics, f *redisfanout.Fanout) error { return Collect(m, f, nil) }
)
