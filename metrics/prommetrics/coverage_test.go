package prommetrics

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/tile"
)

const root = "../.."

var update = flag.Bool("update", false, "write help.txt and docs/metrics.md")

// declared are the structs of the module's public packages, by their path in it, such as relay.Stats.
func declared(t *testing.T) map[string]*ast.TypeSpec {
	all := map[string]*ast.TypeSpec{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name == "internal" || name == "examples" || name == "testdata" ||
			strings.HasPrefix(name, ".") || strings.HasSuffix(name, "test")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					if s.Doc == nil {
						s.Doc = general.Doc
					}
					all[filepath.ToSlash(dir)+"."+s.Name.Name] = s
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	return all
}

// elsewhere are the hooks without a metric of their own: a Stats counts the same, or why there is none.
var elsewhere = map[string]string{
	"relay.Hooks.ClientOpened": "tilefence_relay_connected_total",
	"relay.Hooks.Queued":       "tilefence_relay_frames_out_total",
}

// TestEveryHookHasAMetric calls every hook and looks whether a metric has changed.
func TestEveryHookHasAMetric(t *testing.T) {
	names := map[string]bool{}
	for _, family := range gather(t, everything(t)) {
		names[family.GetName()] = true
	}
	known, excepted := map[string]bool{}, map[string]bool{}
	for _, attach := range hooked {
		registry, m := fresh(t)
		hooks := reflect.ValueOf(attach(m)).Elem()
		known[typeName(hooks.Type())] = true
		for i := range hooks.NumField() {
			key := typeName(hooks.Type()) + "." + hooks.Type().Field(i).Name
			if hooks.Field(i).IsNil() {
				assert.True(t, names[elsewhere[key]], "%s has no metric, and %q does not exist", key, elsewhere[key])
				excepted[key] = true
				continue
			}
			before := values(t, registry)
			for _, yes := range []bool{true, false} {
				hooks.Field(i).Call(sample(hooks.Field(i).Type(), yes))
			}
			assert.NotEqual(t, before, values(t, registry), "%s changes no metric", key)
		}
	}
	for key := range elsewhere {
		assert.True(t, excepted[key], "%s is an exception, but does not exist, or has a metric", key)
	}
	for name := range declared(t) {
		if strings.HasSuffix(name, ".Hooks") {
			assert.True(t, known[name], "%s is not known here", name)
		}
	}
}

// sample are arguments for a hook: everything is something, and bools are yes.
func sample(hook reflect.Type, yes bool) []reflect.Value {
	var in []reflect.Value
	for i := range hook.NumIn() {
		v := reflect.New(hook.In(i)).Elem()
		setAll(v, new(int64), yes)
		in = append(in, v)
	}
	return in
}

// setAll gives every field another number, times one second after another, and errors an error.
func setAll(v reflect.Value, last *int64, yes bool) {
	*last++
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(*last, 0)
		return
	case *time.Duration:
		*x = time.Duration(*last) * time.Second
		return
	case *error:
		*x = errors.New("failed")
		return
	case *tile.Durability: // which has few values
		return
	}
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				setAll(v.Field(i), last, yes)
			}
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case v.CanUint():
		v.SetUint(uint64(*last))
	case v.CanInt():
		v.SetInt(*last)
	case v.Kind() == reflect.Bool:
		v.SetBool(yes)
	}
}

// TestEveryFigureHasAMetric gives every field of every Stats another value, and looks for it.
func TestEveryFigureHasAMetric(t *testing.T) {
	known := map[string]bool{}
	for _, f := range figured {
		registry, m := fresh(t)
		v := reflect.New(f.of).Elem()
		last := int64(1) // a bool's is 1
		setAll(v, &last, true)
		require.NoError(t, f.collect(m, v.Interface()), "%s", f.of)
		count := map[float64]int{}
		for _, value := range values(t, registry) {
			count[value]++
		}
		eachField(v, known, func(key string, value float64) {
			if unserved[key] != "" {
				return
			}
			assert.Equal(t, 1, count[value], "%s has no metric of its own", key)
		})
	}
	for name := range declared(t) {
		ofParts := strings.HasPrefix(name, "..") // a server's are the Stats of its parts
		if strings.HasSuffix(name, "Stats") && !ofParts && ast.IsExported(name[strings.LastIndexByte(name, '.')+1:]) {
			assert.True(t, known[name], "%s is not known here", name)
		}
	}
}

// eachField calls f with every field that is no struct, and notes the structs.
func eachField(v reflect.Value, structs map[string]bool, f func(key string, value float64)) {
	structs[typeName(v.Type())] = true
	for i := range v.NumField() {
		key, x := typeName(v.Type())+"."+v.Type().Field(i).Name, v.Field(i)
		switch value := x.Interface().(type) {
		case time.Time:
			f(key, float64(value.Unix()))
		case time.Duration:
			f(key, value.Seconds())
		case bool:
			f(key, 1)
		default:
			switch {
			case x.Kind() == reflect.Struct:
				eachField(x, structs, f)
			case x.CanUint():
				f(key, float64(x.Uint()))
			default:
				f(key, float64(x.Int()))
			}
		}
	}
}

// TestNamesFollowTheConventions asks the linter of Prometheus.
func TestNamesFollowTheConventions(t *testing.T) {
	all := gather(t, everything(t))
	require.Greater(t, len(all), 200)
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		assert.Contains(t, accepted, p.Metric, "%s", p.Text)
	}
	for _, family := range all {
		assert.True(t, strings.HasPrefix(family.GetName(), namespace+"_"), "%s", family.GetName())
	}
}

// accepted are names that the linter does not like.
var accepted = map[string]string{
	"tilefence_relay_connection_bytes_per_second": "its unit is a rate",
}

// TestSeriesAreFew counts what a process with everything has; a process has a part of it.
func TestSeriesAreFew(t *testing.T) {
	series := 0
	for _, family := range gather(t, everything(t)) {
		for _, metric := range family.GetMetric() {
			series += 1 + len(metric.GetHistogram().GetBucket())
		}
	}
	t.Logf("%d series", series)
	assert.Less(t, series, 2000)
}

// TestHelpIsTheSource compares help.txt with the comments of the fields.
func TestHelpIsTheSource(t *testing.T) {
	types, lines := declared(t), map[string]string{}
	structs := map[string]bool{}
	for _, f := range figured {
		eachField(reflect.Zero(f.of), structs, func(string, float64) {})
	}
	for name := range structs {
		spec := types[name]
		require.NotNil(t, spec, "%s", name)
		if groups[name].name != "" {
			lines[name] = sentence(spec.Doc.Text())
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			text := field.Comment.Text()
			if text == "" {
				text = field.Doc.Text()
			}
			for _, id := range field.Names {
				lines[name+"."+id.Name] = sentence(text)
			}
		}
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(lines)) {
		if lines[key] != "" {
			fmt.Fprintf(&b, "%s\t%s\n", key, lines[key])
		}
	}
	compare(t, "help.txt", b.String())
	helps = parseHelps(b.String()) // of which the page is made
}

// sentence is the first sentence of a comment, on one line.
func sentence(text string) string {
	text, _, _ = strings.Cut(strings.Join(strings.Fields(text), " "), ". ")
	return strings.TrimSuffix(text, ".")
}

// compare compares a file that is made from the source, or writes it.
func compare(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	// Not Equal, which would print both.
	require.True(t, want == string(have), "%s is not up to date: run go test ./metrics/prommetrics -update", path)
}

// TestThePageListsEveryMetric compares docs/metrics.md with the registry.
func TestThePageListsEveryMetric(t *testing.T) {
	var b strings.Builder
	b.WriteString(pageHead)
	pkg := ""
	for _, family := range gather(t, everything(t)) {
		name := family.GetName()
		if p := strings.SplitN(name, "_", 3)[1]; p != pkg {
			pkg = p
			fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", pkg)
		}
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(family.GetType().String()),
			strings.Join(labels, " "), strings.ReplaceAll(family.GetHelp(), "|", "\\|"))
	}
	compare(t, filepath.Join(root, "docs/metrics.md"), b.String())
}

const pageHead = "# Metrics\n\nWhat [`metrics/prommetrics`](../metrics/prommetrics/doc.go) serves, by package. " +
	"[operations.md](operations.md) says what\nto watch. The metric of a field of a `Stats` has the text of the " +
	"field's comment. This page is written by\n`go test ./metrics/prommetrics -update`.\n"
