package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// TestPrometheusAnswersEveryPanel: a battle on servers of its own starts Prometheus, which has an answer to the query
// of every panel of every dashboard, as Grafana would ask it, or the battle has no such metric.
func TestPrometheusAnswersEveryPanel(t *testing.T) {
	stacktest.RequireFullTest(t)
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("Prometheus is not installed")
	}
	t.Parallel()
	p := play(t, "-stack", "local", "-tiles", "3", "-clients", "12", "-tick", "100ms")
	prometheus := p.errs.find(t, `Prometheus: +(http://\S+/)`)
	ask := func(query string) (status string, series int) {
		var answer struct {
			Status string
			Data   struct{ Result []json.RawMessage }
		}
		text := get(t, prometheus+"api/v1/query?query="+url.QueryEscape(query))
		require.NoError(t, json.Unmarshal(text, &answer), "%s", text)
		return answer.Status, len(answer.Data.Result)
	}
	p.counts(t, "admission_settles_total")
	open := panels(t)
	all := len(open)
	waittest.Until(t, func() bool { // a rate needs two samples
		for where, query := range open {
			status, series := ask(query)
			require.Equal(t, "success", status, "%s: %s", where, query)
			if series > 0 {
				delete(open, where)
			}
		}
		for _, query := range open {
			for _, name := range metricName.FindAllString(query, -1) {
				if _, series := ask(name); series > 0 {
					return false
				}
			}
		}
		return len(open) < all/2
	}, 2*time.Minute, time.Second)
	t.Logf("%d of %d queries have data; the others ask for what a battle does not have", all-len(open), all)
	p.end(t)
}

var metricName = regexp.MustCompile(`tilefence_[a-z0-9_]+`)

// panels are the queries of all panels, by where they are.
func panels(t *testing.T) map[string]string {
	files, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	require.NoError(t, err)
	require.Len(t, files, 4)
	all := map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		require.NoError(t, json.Unmarshal(text, &dashboard))
		for _, panel := range dashboard.Panels {
			for i, target := range panel.Targets {
				all[fmt.Sprintf("%s: %s %d", filepath.Base(name), panel.Title, i)] =
					strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			}
		}
	}
	return all
}
