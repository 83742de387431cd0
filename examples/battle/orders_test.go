package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/figures"
)

func TestCutsAreWindows(t *testing.T) {
	p := &plan{options: &options{}, meters: newMeters()}
	p.meters.lateness.Record(time.Second)
	p.meters.ticks.Add(3)
	p.meters.outcomes.add("applied")
	var out bytes.Buffer
	require.NoError(t, figures.Obey(strings.NewReader("cut\ncut\n"), &out, p.cut))
	var first, second figures.Set
	answers := json.NewDecoder(&out)
	require.NoError(t, answers.Decode(&first))
	require.NoError(t, answers.Decode(&second))
	assert.EqualValues(t, 3, first.Counters["ticks"])
	assert.EqualValues(t, 1, first.Counters["ledger_outcomes_applied"])
	late, err := first.Histograms["lateness"].Latency()
	require.NoError(t, err)
	assert.EqualValues(t, 1, late.Count)
	assert.EqualValues(t, 3, second.Counters["ticks"], "counters are never set back")
	assert.Empty(t, second.Histograms["lateness"], "histograms begin anew")

	assert.ErrorContains(t, figures.Obey(strings.NewReader("dance\n"), &out, p.cut), "dance")
}
