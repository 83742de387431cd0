package prommetrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// alert is a rule of deploy/prometheus/alerts.yaml.
type alert struct {
	Alert               string
	Expr                string
	For                 string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.Greater(t, len(all), 30)
	return all
}

// dashboard is one of deploy/grafana/dashboards.
type dashboard struct {
	UID    string
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

// queries are the expressions of all panels, by where they are.
func queries(t *testing.T) map[string]string {
	files, err := filepath.Glob(filepath.Join(root, "deploy/grafana/dashboards/*.json"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	all, uids := map[string]string{}, map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d), "%s", name)
		require.False(t, uids[d.UID], "%s: the uid is taken", name)
		uids[d.UID] = true
		for _, p := range d.Panels {
			require.NotEmpty(t, p.Targets, "%s: %s", name, p.Title)
			for i, target := range p.Targets {
				all[fmt.Sprintf("%s: %s %d", filepath.Base(name), p.Title, i)] = target.Expr
			}
		}
	}
	return all
}

var (
	metricName = regexp.MustCompile(`tilefence_[a-z0-9_]+`)
	selected   = regexp.MustCompile(`(tilefence_[a-z0-9_]+)\{([a-z_]+)=~?"([^"]*)"\}`)
)

// missing are the metrics, and the values of labels, that an expression names and the registry does not have.
func missing(exists map[string]bool, expr string) (all []string) {
	for _, name := range metricName.FindAllString(expr, -1) {
		if !exists[name] {
			all = append(all, name)
		}
	}
	for _, s := range selected.FindAllStringSubmatch(expr, -1) {
		for value := range strings.SplitSeq(s[3], "|") {
			if id := s[1] + "{" + s[2] + "=" + value + "}"; !exists[id] {
				all = append(all, id)
			}
		}
	}
	return all
}

// existing are the names that Prometheus knows, those of histograms with their suffixes, and each with each label.
func existing(t *testing.T) map[string]bool {
	all := map[string]bool{}
	for _, family := range gather(t, everything(t)) {
		names := []string{family.GetName()}
		if family.GetMetric()[0].GetHistogram() != nil {
			names = []string{names[0] + "_bucket", names[0] + "_sum", names[0] + "_count"}
		}
		for _, name := range names {
			all[name] = true
			for _, metric := range family.GetMetric() {
				for _, l := range metric.GetLabel() {
					all[name+"{"+l.GetName()+"="+l.GetValue()+"}"] = true
				}
			}
		}
	}
	return all
}

func TestMissingMetricsAreFound(t *testing.T) {
	exists := existing(t)
	assert.Empty(t, missing(exists, `rate(tilefence_tile_heals_total{how="rebased"}[5m]) > 0`))
	assert.Empty(t, missing(exists, `tilefence_tile_tick_seconds_count`))
	assert.Equal(t, []string{"tilefence_tile_tick_seconds", "tilefence_tile_heals"},
		missing(exists, `tilefence_tile_tick_seconds / tilefence_tile_heals`))
	assert.Equal(t, []string{"tilefence_tile_heals_total{how=replaced}"},
		missing(exists, `tilefence_tile_heals_total{how=~"rebased|replaced"}`))
}

// TestAlertsNameWhatExists checks each alert's metrics, severity, summary and runbook.
func TestAlertsNameWhatExists(t *testing.T) {
	exists, headings, names := existing(t), anchors(t, "docs/operations.md"), map[string]bool{}
	for _, a := range alerts(t) {
		assert.False(t, names[a.Alert], "%s exists twice", a.Alert)
		names[a.Alert] = true
		assert.NotEmpty(t, metricName.FindString(a.Expr), "%s", a.Alert)
		assert.Empty(t, missing(exists, a.Expr), "%s", a.Alert)
		assert.Contains(t, []string{"warning", "critical"}, a.Labels["severity"], "%s", a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], "%s", a.Alert)
		page, heading, _ := strings.Cut(a.Annotations["runbook"], "#")
		assert.Equal(t, "docs/operations.md", page, "%s", a.Alert)
		assert.True(t, headings[heading], "%s: the page has no heading #%s", a.Alert, heading)
	}
}

// TestEveryPlaneHasAnAlert holds the alerts to what ReadyHandler can say: a problem of any plane raises one.
func TestEveryPlaneHasAnAlert(t *testing.T) {
	caught := false
	for _, a := range alerts(t) {
		caught = caught || strings.Contains(a.Expr, "tilefence_problems >")
	}
	require.True(t, caught, "no alert is about every plane")
}

// anchors are the headings of a page, as links name them.
func anchors(t *testing.T, page string) map[string]bool {
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	all, dropped := map[string]bool{}, regexp.MustCompile(`[^a-z0-9 _-]`)
	for line := range strings.Lines(string(text)) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			plain := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all[strings.ReplaceAll(plain, " ", "-")] = true
		}
	}
	return all
}

// TestThePageOfOperationsNamesWhatExists checks the metrics in the table of what to watch.
func TestThePageOfOperationsNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n## What to watch\n")
	table, _, _ = strings.Cut(table, "\n## ")
	known, named := map[string]bool{}, 0
	for _, family := range gather(t, everything(t)) {
		known[strings.TrimPrefix(family.GetName(), namespace+"_")] = true
	}
	for _, name := range regexp.MustCompile("`([a-z]+(?:_[a-z]+)+)`").FindAllStringSubmatch(table, -1) {
		assert.True(t, known[name[1]], "%s", name[1])
		named++
	}
	require.Greater(t, named, 30)
}

// TestDashboardsNameWhatExists checks the metrics of each panel.
func TestDashboardsNameWhatExists(t *testing.T) {
	exists := existing(t)
	for where, expr := range queries(t) {
		assert.NotEmpty(t, metricName.FindString(expr), "%s", where)
		assert.Empty(t, missing(exists, expr), "%s", where)
	}
}

// TestPromtoolAcceptsTheRules runs the rules' own tests, and has the queries of the dashboards parsed.
func TestPromtoolAcceptsTheRules(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed; the Debian package prometheus has it")
	}
	run := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
		require.NoError(t, err, "promtool %v: %s", args, out)
	}
	run("check", "rules", filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	run("test", "rules", filepath.Join(root, "deploy/prometheus/alerts_test.yaml"))

	type rule struct{ Record, Expr string }
	var panels []rule
	for _, expr := range queries(t) {
		panels = append(panels, rule{fmt.Sprintf("panel:%d", len(panels)),
			strings.ReplaceAll(expr, "$__rate_interval", "1m")})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": panels}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "panels.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	run("check", "rules", path)
}
