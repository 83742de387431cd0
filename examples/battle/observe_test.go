package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/tile"
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

func TestInspectorDecodesTheGame(t *testing.T) {
	const id fence.TileID = 0x85283083fffffff
	rules, err := (&plan{}).newRules(id)
	require.NoError(t, err)
	join := tile.Intent{Tile: id, Actor: "ann", Body: game.Order{Kind: game.Spawn, Cell: 1200}.Encode()}
	events, _ := rules.Resolve(1, []tile.Intent{join})
	require.NoError(t, rules.Apply(1, events))
	snapshot, err := rules.Snapshot()
	require.NoError(t, err)
	state, err := decodeTile(id, snapshot)
	require.NoError(t, err)
	require.Len(t, state.(map[string]any)["ships"], 1)
	_, err = decodeTile(id, []byte("nonsense"))
	require.Error(t, err)
}

func TestWhoMayInspect(t *testing.T) {
	for _, c := range []struct {
		from, host string
		may        bool
	}{
		{"127.0.0.1:50000", "127.0.0.1:7000", true},
		{"[::1]:50000", "localhost:7000", true},
		{"10.0.0.8:50000", "127.0.0.1:7000", false},
		{"127.0.0.1:50000", "rebound.example:7000", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/inspect/tiles", nil)
		r.RemoteAddr, r.Host = c.from, c.host
		assert.Equal(t, c.may, onThisMachine(r) == nil, "%s asks for %s", c.from, c.host)
	}
}

func TestCutsAreWindows(t *testing.T) {
	p := &plan{options: &options{}, meters: measure.NewMeters()}
	var err error
	p.registry, p.metrics, err = newMetrics()
	require.NoError(t, err)
	var hooks tile.Hooks
	prommetrics.Attach(p.metrics, &hooks)
	for range 3 {
		hooks.Ticked(tile.TickInfo{})
	}
	p.meters.Hooks("ann:1").Ticked(tile.TickInfo{Late: time.Second})
	p.meters.Players.Outcomes.Add("applied")
	var out bytes.Buffer
	require.NoError(t, figures.Obey(strings.NewReader("cut\ncut\n"), &out, p.cut))
	var first, second figures.Set
	answers := json.NewDecoder(&out)
	require.NoError(t, answers.Decode(&first))
	require.NoError(t, answers.Decode(&second))
	assert.EqualValues(t, 3, first.Counters["servers_tile_tick_seconds"])
	assert.EqualValues(t, 1, first.Counters["ledger_outcomes_applied"])
	late, err := first.Histograms["lateness"].Latency()
	require.NoError(t, err)
	assert.EqualValues(t, 1, late.Count)
	assert.EqualValues(t, 3, second.Counters["servers_tile_tick_seconds"], "counters are never set back")
	assert.Empty(t, second.Histograms["lateness"], "histograms begin anew")

	assert.ErrorContains(t, figures.Obey(strings.NewReader("dance\n"), &out, p.cut), "dance")
}
