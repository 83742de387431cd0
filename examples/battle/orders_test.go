package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/tile"
)

func TestCutsAreWindows(t *testing.T) {
	p := &plan{options: &options{}, meters: measure.NewMeters()}
	var err error
	p.registry, p.metrics, err = newMetrics()
	require.NoError(t, err)
	var hooks tile.Hooks
	p.metrics.Tile(&hooks)
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
