package prommetrics

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/fence"
)

// source is something that has figures.
type source struct {
	read   func() (reflect.Value, error) // a struct
	prefix string
	labels prometheus.Labels
}

// Collect serves the Stats of a source, read at each scrape: one metric for each field. labels are put to all of them
// and may be nil; they must have few values. Sources of one type must have the same names of labels.
//
// Fields may be unsigned integers (counters), other integers, durations, times and bools (gauges), and structs of
// those. Errors: a *fence.ArgumentError if S has a field of another type.
func Collect[S any](m *Metrics, from interface{ Stats() S }, labels prometheus.Labels) error {
	return Read(m, func(context.Context) (S, error) { return from.Stats(), nil }, labels)
}

// Read is Collect for figures that take a call to a store: read is called at each scrape, and has a second to answer.
// An example is the depth of a queue of admission/match:
//
//	err := prommetrics.Read(m, func(ctx context.Context) (match.Depth, error) {
//		return lobby.Depth(ctx, "ranked")
//	}, prometheus.Labels{"queue": "ranked"})
func Read[S any](m *Metrics, read func(context.Context) (S, error), labels prometheus.Labels) error {
	t := reflect.TypeFor[S]()
	return m.addSource(t, prefixOf(t), func() (reflect.Value, error) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		stats, err := read(ctx)
		return reflect.ValueOf(stats), err
	}, labels)
}

// readTimeout is well below the ten seconds that Prometheus waits for a scrape by default.
const readTimeout = time.Second

func (m *Metrics) addSource(
	t reflect.Type, prefix string, read func() (reflect.Value, error), labels prometheus.Labels,
) error {
	if t.Kind() != reflect.Struct {
		return &fence.ArgumentError{Field: "Stats", Value: t, Want: "a struct"}
	}
	if _, err := structFigures(reflect.Zero(t), prefix, labels); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = append(m.sources, &source{read: read, prefix: prefix, labels: maps.Clone(labels)})
	return nil
}

// prefixOf is what the names of a type's metrics begin with: relay for relay.Stats, plan_desk for plan.DeskStats.
func prefixOf(t reflect.Type) string {
	name := path.Base(t.PkgPath())
	if kind := strings.TrimSuffix(t.Name(), "Stats"); kind != "" {
		name += "_" + snake(kind)
	}
	return namespace + "_" + name
}

// figure is the value of a metric.
type figure struct {
	name   string
	help   string
	labels prometheus.Labels
	kind   prometheus.ValueType
	value  float64
	join   func(a, b float64) float64 // for several sources
}

func sum(a, b float64) float64 { return a + b }

// group says what becomes of a struct within a Stats: its field's name, or those of its own fields, are values of
// labels of one metric.
type group struct {
	prefix string // of the names
	outer  string // the label that has the name of the field
	name   string // of the one metric of all its fields
	inner  string // the label that has the names of its fields
}

var groups = map[string]group{
	"fence/route.SourceStats": {outer: "source"},
	"admission.Tally":         {outer: "kind", name: "intents_total", inner: "outcome"},
	"admission.Shaped":        {prefix: "shaped_", outer: "scope"},
	"bridge.Drops":            {name: "dropped_total", inner: "reason"},

	"metrics/prommetrics.states": {name: "tiles", inner: "state"},
	"metrics/prommetrics.planes": {name: "problems", inner: "plane"},
}

// named are the fields whose metric is not named for them.
var named = map[string]string{
	"relay.FrameStats.BytesOut": "sent_bytes_total",
}

// unserved are fields without a metric.
var unserved = map[string]string{
	"checkpoint.Stats.LagTile":       "a tile is no label; the log names it",
	"checkpoint.Stats.UnsettledTile": "a tile is no label; the health of the server names it",
}

// accumulated are durations that only grow.
var accumulated = map[string]bool{"admission.Shaped.Waited": true}

// figures are the values of a struct's fields.
func structFigures(v reflect.Value, prefix string, labels prometheus.Labels) ([]figure, error) {
	var all []figure
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		key := typeName(v.Type()) + "." + field.Name
		if !field.IsExported() || unserved[key] != "" {
			continue
		}
		if _, isTime := value.Interface().(time.Time); value.Kind() != reflect.Struct || isTime {
			f, err := toFigure(typeName(v.Type()), field.Name, value)
			if err != nil {
				return nil, err
			}
			f.name, f.labels = prefix+"_"+f.name, labels
			all = append(all, f)
			continue
		}
		inner, err := groupFigures(field, value, prefix, labels)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

// groupFigures are the values of a struct that is a field.
func groupFigures(
	field reflect.StructField, value reflect.Value, prefix string, labels prometheus.Labels,
) ([]figure, error) {
	kind := typeName(value.Type())
	g, known := groups[kind]
	if field.Anonymous {
		return structFigures(value, prefix, labels)
	}
	if !known {
		return nil, &fence.ArgumentError{Field: field.Name, Value: kind, Want: "a number, duration, time or bool"}
	}
	if g.outer != "" {
		labels = with(labels, g.outer, snake(field.Name))
	}
	all, err := structFigures(value, prefix, labels)
	for i := range all {
		name := strings.TrimPrefix(all[i].name, prefix+"_")
		if g.name != "" {
			all[i].labels = with(labels, g.inner, strings.TrimSuffix(name, "_total"))
			name, all[i].help = g.name, helps[kind]
		}
		all[i].name = prefix + "_" + g.prefix + name
	}
	return all, err
}

func with(labels prometheus.Labels, name, value string) prometheus.Labels {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = prometheus.Labels{}
	}
	labels[name] = value
	return labels
}

// toFigure is the value of one field.
func toFigure(of, name string, v reflect.Value) (figure, error) {
	key, counts := of+"."+name, strings.HasSuffix(of, "Stats") || groups[of] != group{}
	f := figure{name: snake(name), help: cmp.Or(helps[key], key), kind: prometheus.GaugeValue, join: sum}
	switch x := v.Interface().(type) {
	case time.Duration:
		f.name, f.value, f.join = f.name+"_seconds", x.Seconds(), func(a, b float64) float64 { return max(a, b) }
		if accumulated[key] {
			f.name, f.kind, f.join = f.name+"_total", prometheus.CounterValue, sum
		}
	case time.Time:
		if !x.IsZero() {
			f.value = float64(x.UnixNano()) / 1e9
		}
		f.name, f.join = f.name+"_timestamp_seconds", func(a, b float64) float64 { return min(a, b) }
	case bool:
		if x {
			f.value = 1
		}
		f.join = func(a, b float64) float64 { return min(a, b) }
	default:
		switch {
		case v.CanUint() && counts:
			f.name, f.kind, f.value = f.name+"_total", prometheus.CounterValue, float64(v.Uint())
		case v.CanUint(): // such as a Depth's
			f.value = float64(v.Uint())
		case v.CanInt():
			f.value = float64(v.Int())
		default:
			return f, &fence.ArgumentError{Field: key, Value: v.Type(), Want: "a number, duration, time or bool"}
		}
	}
	if other := named[key]; other != "" {
		f.name = other
	}
	return f, nil
}

// collectSources sends what all sources have now, those with the same name and labels together.
func (m *Metrics) collectSources(sources []*source, to chan<- prometheus.Metric) {
	joined, order := map[string]*figure{}, []string(nil)
	for _, s := range sources {
		v, err := s.read()
		if err != nil {
			m.failures.Inc()
			continue
		}
		figures, _ := structFigures(v, s.prefix, s.labels) // addSource has tried it
		for _, f := range figures {
			id := f.name + fmt.Sprint(f.labels)
			if earlier, ok := joined[id]; ok {
				earlier.value = earlier.join(earlier.value, f.value)
				continue
			}
			joined[id], order = &f, append(order, id)
		}
	}
	for _, id := range order {
		send(joined[id], to)
	}
}

func send(f *figure, to chan<- prometheus.Metric) {
	names := slices.Sorted(maps.Keys(f.labels))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = f.labels[name]
	}
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc(f.name, f.help, names, nil), f.kind, f.value, values...)
}

// module is the path of this module.
var module = strings.TrimSuffix(reflect.TypeFor[fence.TileID]().PkgPath(), "/fence") + "/"

// typeName is the path of a type within the module, such as relay.Stats or fence/route.Stats.
func typeName(t reflect.Type) string { return strings.TrimPrefix(t.PkgPath(), module) + "." + t.Name() }

// snake is a Go name in the way of Prometheus.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// helpText has the comment of every field, one a line. The tests write it from the source: go test -update.
//
//go:embed help.txt
var helpText string

// helps is the same by type and field.
var helps = parseHelps(helpText)

func parseHelps(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		key, help, _ := strings.Cut(strings.TrimSpace(line), "\t")
		all[key] = help
	}
	return all
}
