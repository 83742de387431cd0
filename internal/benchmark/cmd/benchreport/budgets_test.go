//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/benchmark/headline"
	"github.com/tilefence/tilefence/internal/chart"
	shared "github.com/tilefence/tilefence/internal/figures"
)

func limit(v float64) *float64 { return &v }

func TestVerdicts(t *testing.T) {
	results := map[string]result{"a.B": {Name: "a.B", Metrics: []metric{{100, "p99-ms"}, {0, "missed"}}}}
	for _, c := range []struct {
		budget budget
		want   verdict
		value  string
	}{
		{budget{Row: "a.B", Unit: "p99-ms", Most: limit(100)}, met, "100"},
		{budget{Row: "a.B", Unit: "p99-ms", Most: limit(99.9)}, missed, "100"},
		{budget{Row: "a.B", Unit: "p99-ms", Least: limit(100)}, met, "100"},
		{budget{Row: "a.B", Unit: "p99-ms", Least: limit(101)}, missed, "100"},
		{budget{Row: "a.B", Unit: "missed", Most: limit(0)}, met, "0"},
		{budget{Row: "a.B", Unit: "p50-ms", Most: limit(1)}, unknown, nothing},
		{budget{Row: "a.C", Unit: "p99-ms", Most: limit(1)}, unknown, nothing},
	} {
		value, got := c.budget.judge(results)
		assert.Equal(t, c.want, got, "%+v", c.budget)
		assert.Equal(t, c.value, value, "%+v", c.budget)
	}
}

func TestMissesNameWhatIsMissedOrNotMeasured(t *testing.T) {
	budgets := []budget{{Figure: "fast", Row: "a.B", Unit: "ms", Most: limit(2)},
		{Figure: "slow", Row: "a.B", Unit: "s", Most: limit(2)},
		{Figure: "later", Row: "a.C", Unit: "s", Least: limit(1)}}
	out := misses(budgets, map[string]result{"a.B": {Metrics: []metric{{1, "ms"}, {3, "s"}}}})
	assert.Equal(t, "MISSED: slow (a.B s): 3, budget ≤ 2\nnot measured: later (a.C s): –, budget ≥ 1\n", out)
}

// TestBudgetsAreComplete wants of each budget one limit, a source, an action, and a benchmark that exists and reports
// its unit, so that a renamed benchmark is noticed here and not as "not measured" in the page.
func TestBudgetsAreComplete(t *testing.T) {
	budgets, err := readBudgets()
	require.NoError(t, err)
	require.NotEmpty(t, budgets)
	seen := map[string]bool{}
	for _, b := range budgets {
		assert.NotEmpty(t, b.Figure)
		assert.False(t, seen[b.Figure], "%s: twice", b.Figure)
		seen[b.Figure] = true
		assert.True(t, (b.Most == nil) != (b.Least == nil), "%s: want most or least", b.Figure)
		assert.Regexp(t, `^(plan|own)\b`, b.Source, b.Figure)
		assert.NotEmpty(t, b.Action, b.Figure)
		pkg, name, ok := strings.Cut(strings.Split(b.Row, "/")[0], ".")
		require.True(t, ok, b.Row)
		if pkg == "headline" {
			continue // not of go test
		}
		dir := packageOf(t, pkg)
		text := testText(t, dir)
		assert.Contains(t, text, "func Benchmark"+name+"(b *testing.B)", "%s: %s", b.Figure, b.Row)
		run := false
		for _, s := range sections {
			if s.match != "" && strings.Contains(dir+"/", strings.TrimSuffix(strings.TrimPrefix(s.pkg, "./"), "...")) {
				run = run || regexp.MustCompile(s.match).MatchString("Benchmark"+name)
			}
		}
		assert.True(t, run, "%s: no section runs %s", b.Figure, b.Row)
	}
}

// packageOf finds the directory of a package by its last element.
func packageOf(t *testing.T, name string) string {
	t.Helper()
	for _, s := range sections {
		dir := strings.TrimSuffix(strings.TrimPrefix(s.pkg, "./"), "/...")
		if filepath.Base(dir) == name {
			return dir
		}
	}
	t.Fatalf("no section is about a package %s", name)
	return ""
}

// testText is all test files of a package.
func testText(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../../..", dir, "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

func TestHeadlineIsJudged(t *testing.T) {
	budgets, err := readBudgets()
	require.NoError(t, err)
	run := headline.Run{Players: 10_000, Verdict: headline.Outcome{Converged: true}}
	run.Latency.CommitToClient = shared.Latency{P99: 80}
	run.Traffic.BytesPerClientTick = 700
	results := map[string]result{}
	half := run
	half.Players = 5000
	for _, r := range headlineResults("headline.Battle", &headline.Result{Runs: []headline.Run{run, half}}) {
		results[r.Name] = r
	}
	var judged int
	for i := range budgets {
		if !strings.HasPrefix(budgets[i].Row, "headline.") {
			continue
		}
		_, v := budgets[i].judge(results)
		want := met
		if budgets[i].Unit == "bytes/client-tick" {
			want = missed
		}
		assert.Equal(t, want, v, budgets[i].Figure)
		judged++
	}
	assert.GreaterOrEqual(t, judged, 4)
}

func TestPageIsWrittenFromItsFiles(t *testing.T) {
	page := filepath.Join(t.TempDir(), "benchmarks.md")
	f, err := load(page)
	require.NoError(t, err, "nothing was measured yet")
	m := measured{Machine: headline.Machine{Date: "2026-01-02", Processor: "Z80", Cores: 1},
		Results: parse("pkg: example.com/m/relay\nBenchmarkDeliver/1-2  10  2662 ns/op  9 allocs/op\n")}
	f.Sections["The relay"] = m
	require.NoError(t, f.save(page, nil))

	f, err = load(page)
	require.NoError(t, err)
	assert.Nil(t, f.Headline)
	assert.Equal(t, m, f.Sections["The relay"], "a section that is not run again keeps its figures")
	f.Headline = &headline.Result{Tiles: 7, Runs: []headline.Run{{Players: 100, Seconds: 10}}}
	require.NoError(t, f.save(page, nil))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, want := range []string{"| relay.Deliver/1 | 2,662 | 9 |", "*2026-01-02: Z80", "Ten thousand as one hundred",
		"(headline-latency.svg)"} {
		assert.Contains(t, string(text), want)
	}
	assert.FileExists(t, beside(page, "headline-cores.svg"))
	again, err := load(page)
	require.NoError(t, err)
	assert.Equal(t, f.page(nil), again.page(nil), "the page follows from its files")
}

// TestMatchmakingHasChartsAndItsBudgets: the charts are drawn from the rows and the series of the section.
func TestMatchmakingHasChartsAndItsBudgets(t *testing.T) {
	page := filepath.Join(t.TempDir(), "benchmarks.md")
	f, err := load(page)
	require.NoError(t, err)
	curve := []chart.Curve{{Name: "waiting", Points: [][2]float64{{0, 9}, {1, 0}}}}
	f.Sections[matchTitle] = measured{Results: parse("pkg: example.com/m/redismatch\n" +
		"BenchmarkArrival/1000_players-2 1 7 made-ms-p50 8 made-ms-p95 9 made-ms-p99\n" +
		"BenchmarkArrival/10_players-2 1 1 made-ms-p50 2 made-ms-p95 3 made-ms-p99\n"),
		Series: map[string]chart.Series{"drain": {Name: "drain", Curves: curve}, "kill": {Name: "kill", Curves: curve}}}
	m := f.Sections[matchTitle]
	assert.Equal(t, [][2]float64{{10, 3}, {1000, 9}}, m.arrivals().Curves[2].Points, "p99, ascending")
	budgets, err := readBudgets()
	require.NoError(t, err)
	require.NoError(t, f.save(page, budgets))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "## "+matchTitle)
	assert.Contains(t, section, "made-ms-p50) | ≤ 5 | 7 | MISSED |")
	for _, name := range []string{"match-latency.svg", "match-drain.svg", "match-kill.svg"} {
		assert.Contains(t, section, "("+name+")")
		assert.FileExists(t, beside(page, name))
	}
	again, err := load(page)
	require.NoError(t, err)
	assert.Equal(t, f.page(budgets), again.page(budgets), "the page follows from its files")
}

// TestTheCommittedPageFollows: a change of a section's words, a budget or a figure needs the page written anew, by
// benchreport -page.
func TestTheCommittedPageFollows(t *testing.T) {
	const page = "../../../../docs/benchmarks.md"
	budgets, err := readBudgets()
	require.NoError(t, err)
	f, err := load(page)
	require.NoError(t, err)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, f.page(budgets), string(text))
}
