//go:build linux

package headline

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/figures"
)

func TestStatOfAProcess(t *testing.T) {
	line := "42 (a) b (c) S 7 42 42 0 -1 4194304 100 200 0 0 150 50 30 20 20 0 5 0 12345 1000000 256 " +
		"18446744073709551615"
	p, err := parseStat([]byte(line))
	require.NoError(t, err)
	assert.Equal(t, proc{parent: 7, used: 2500 * time.Millisecond, resident: int64(256 * os.Getpagesize())}, p)
	for _, bad := range []string{"", "42 name S 1", "42 (name) S 1 2 3"} {
		_, err := parseStat([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func TestTreesOfProcesses(t *testing.T) {
	all := map[int]proc{1: {used: time.Hour}, 10: {parent: 1, used: time.Second, resident: 1},
		11: {parent: 10, used: 2 * time.Second, resident: 2}, 12: {parent: 11, used: 4 * time.Second, resident: 4},
		20: {parent: 1, used: 8 * time.Second, resident: 8}}
	sum := tree(all, 10)
	assert.Equal(t, 7*time.Second, sum.used)
	assert.EqualValues(t, 7, sum.resident)
	assert.Zero(t, tree(all, 99).used, "it has ended")
}

func TestProcOfThisMachine(t *testing.T) {
	all, err := processes("/proc")
	require.NoError(t, err)
	assert.Positive(t, tree(all, os.Getpid()).resident)
	spent, err := busy("/proc")
	require.NoError(t, err)
	assert.Positive(t, spent)

	root := t.TempDir()
	text := "cpu  10 20 30 1000 500 1 2 3 99 99\ncpu0"
	require.NoError(t, os.WriteFile(filepath.Join(root, "stat"), []byte(text), 0o600))
	spent, err = busy(root)
	require.NoError(t, err)
	assert.Equal(t, 660*time.Millisecond, spent, "without idle and waiting, and without guests, which user has")
	_, err = processes(root)
	assert.Error(t, err, "no processes")
}

func TestLoadBetweenTwoMoments(t *testing.T) {
	began := time.Now()
	before := load{at: began, busy: 10 * time.Second, kinds: map[string]Usage{"relay": {Name: "relay", Cores: 1},
		Swarm: {Name: Swarm, Cores: 5}}}
	after := load{at: began.Add(10 * time.Second), busy: 28 * time.Second,
		kinds: map[string]Usage{"relay": {Name: "relay", Processes: 1, Cores: 4, MiB: 9},
			Swarm: {Name: Swarm, Processes: 2, Cores: 15}}}
	actors, busy, others := after.since(before)
	assert.Equal(t, []Usage{{Swarm, 2, 1, 0}, {"relay", 1, 0.3, 9}}, actors)
	assert.InDelta(t, 1.8, busy, 1e-9)
	assert.InDelta(t, 0.5, others, 1e-9)
	run := Run{Actors: actors}
	assert.InDelta(t, 0.3, run.Servers(), 1e-9)
}

func TestFiguresOfARun(t *testing.T) {
	h := figures.NewHistogram()
	for range 99 {
		h.Record(10 * time.Millisecond)
	}
	h.Record(time.Second)
	b := &battle{Size: Size{Players: 100}}
	run := &Run{Seconds: 10}
	require.NoError(t, b.fill(run, figures.Set{Histograms: map[string]figures.Sample{"commit_to_client": h.Cut()},
		Counters: map[string]float64{"client_bytes": 600 * 100 * 20, "servers_tile_missed_ticks_total": 3,
			"ledger_outcomes_applied": 2, "ledger_outcomes_fizzled": 0}}))
	assert.InDelta(t, 600, run.Traffic.BytesPerClientTick, 1e-9, "100 clients, 20 ticks")
	assert.InDelta(t, 3, run.Ticks.Missed, 1e-9)
	assert.Equal(t, map[string]float64{"applied": 2}, run.Orders.Ledger)
	assert.InEpsilon(t, 10, run.Latency.CommitToClient.P99, 0.01)
	points := shares(run.Latency.Bars)
	require.Len(t, points, 2)
	assert.InDelta(t, 99, points[0][1], 1e-9)
	assert.InDelta(t, 100, points[1][1], 1e-9)
	assert.InEpsilon(t, 1000, points[1][0], 0.01)
}

func TestCoarseBarsKeepEveryCount(t *testing.T) {
	h := figures.NewHistogram()
	for i := range 10_000 {
		h.Record(time.Duration(i) * 10 * time.Microsecond)
	}
	sample := h.Cut()
	fine, err := sample.Bars()
	require.NoError(t, err)
	few, err := coarse(sample)
	require.NoError(t, err)
	assert.Less(t, len(few), 120)
	assert.Equal(t, fine[len(fine)-1].Upto, few[len(few)-1].Upto)
	var sum int64
	for i, b := range few {
		sum += b.Count
		assert.True(t, i == 0 || b.Upto > few[i-1].Upto)
	}
	assert.EqualValues(t, 10_000, sum)
}

// example is a result of two battles.
func example() *Result {
	bars := []figures.Bar{{Upto: 2, Count: 50}, {Upto: 20, Count: 49}, {Upto: 300, Count: 1}}
	run := func(players int, converged bool) Run {
		return Run{Players: players, Seconds: 10, Latency: Latency{Bars: bars},
			Traffic: Traffic{BytesPerClientTick: 123}, Actors: []Usage{{"relay", 1, 0.25, 30}, {Swarm, 4, 0.75, 90}},
			Verdict: Outcome{Converged: converged, Why: "bot0001 & <others>"}}
	}
	return &Result{Tiles: 7, Runs: []Run{run(100, true), run(10_000, false)}}
}

func TestChartsAreXMLWithTheirData(t *testing.T) {
	charts := example().Charts(100, 600)
	require.Len(t, charts, 3)
	for name, svg := range charts {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
		}
		assert.NotContains(t, svg, "NaN", name)
		assert.Contains(t, svg, "<metadata>", name)
	}
	assert.Contains(t, charts["headline-latency.svg"], "\n100 players,2,50\n")
	assert.Contains(t, charts["headline-bytes.svg"], "\n10000 players,,123\n")
	assert.Contains(t, charts["headline-cores.svg"], "\n100 players,relay,0.25\n")
	for name, svg := range (&Result{Runs: []Run{{}}}).Charts(100, 600) {
		assert.NotContains(t, svg, "NaN", "%s of a battle without figures", name)
	}
}

func TestTable(t *testing.T) {
	table := example().Table()
	assert.Contains(t, table, "| | 100 players | 10,000 players |\n")
	assert.Contains(t, table, "| cores: servers and actors / bots / anything else | 0.25 / 0.75 / 0.00 |")
	assert.Contains(t, table, "NO: bot0001")
	assert.Contains(t, table, "| bots: cores, MiB | 0.75, 90 |")
	for line := range strings.Lines(table) {
		assert.Equal(t, 4, strings.Count(line, "|"), line)
	}
}
