//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tilefence/tilefence/internal/chart"
)

// matchTitle is the section about matchmaking, which has charts and its budgets once more.
const matchTitle = "Matchmaking"

// matchPackage begins the names of its rows.
const matchPackage = "redismatch."

// drawn is a chart and the file that it is written to, beside the page.
type drawn struct{ file, title, svg string }

// matchCharts draws what the section has measured.
func (m *measured) matchCharts() (all []drawn) {
	add := func(file, title string, s chart.Series) {
		if len(s.Curves) > 0 {
			all = append(all, drawn{file, title, s.Draw(title)})
		}
	}
	add("match-latency.svg", "From enqueue to a published match, by players who each ask about once a second",
		m.arrivals())
	add("match-drain.svg", "Depth of the queue while 3 workers drain 10,000 tickets", m.Series["drain"])
	add("match-kill.svg", "Depth of the queue after a worker was killed with a batch claimed", m.Series["kill"])
	return all
}

// arrivals are the latencies of matches against the number of players.
func (m *measured) arrivals() chart.Series {
	s := chart.Series{Name: "arrival", X: "players", Y: "ms", Decade: true,
		Limits: map[string]float64{"p99 budget, 50 ms": 50}}
	for _, q := range []string{"p50", "p95", "p99"} {
		c := chart.Curve{Name: q}
		for _, r := range m.Results {
			name, ok := strings.CutPrefix(r.Name, matchPackage+"Arrival/")
			if !ok {
				continue
			}
			players, err := strconv.ParseFloat(strings.TrimSuffix(name, "_players"), 64)
			if v, ok := r.value("made-ms-" + q); ok && err == nil {
				c.Points = append(c.Points, [2]float64{players, v})
			}
		}
		slices.SortFunc(c.Points, func(a, b [2]float64) int { return int(a[0] - b[0]) })
		if len(c.Points) > 0 {
			s.Curves = append(s.Curves, c)
		}
	}
	return s
}

// writeMatch adds what was asked for beside what was measured, and the charts.
func writeMatch(w io.Writer, m measured, budgets []budget, results map[string]result) {
	own := slices.DeleteFunc(slices.Clone(budgets), func(b budget) bool {
		return !strings.HasPrefix(b.Row, matchPackage)
	})
	fmt.Fprint(w, "\nAsked for and measured:\n\n")
	writeBudgets(w, own, results)
	fmt.Fprintln(w)
	for _, c := range m.matchCharts() {
		fmt.Fprintf(w, "![%s](%s)\n", c.title, c.file)
	}
}
