package statuspoller

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/stream"
)

// Totals are metrics as they are now, by their names without tilefence_: each over all values of its labels, and, with
// a slash and the value, for one value of a label. Of a histogram it is how many observations there were.
type Totals map[string]float64

// ReadTotals reads the library's metrics from a registry.
func ReadTotals(g prometheus.Gatherer) (Totals, error) {
	families, err := g.Gather()
	all := Totals{}
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

// Count adds metrics up; nil if this process has none of them.
func (t Totals) Count(names ...string) *uint64 {
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

// Settled is how many actions the ledger has settled, by outcome; empty where no gateway is.
func (t Totals) Settled() map[string]uint64 {
	all := map[string]uint64{}
	for o := stream.Applied; o.Valid(); o++ {
		if n := t.Count("admission_settles_total/" + o.String()); n != nil {
			all[o.String()] = *n
		}
	}
	return all
}
