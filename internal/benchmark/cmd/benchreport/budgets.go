//go:build linux

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// budgets.json holds every budget of the benchmark plan. The chart of the headline marks what stands there.
//
//go:embed budgets.json
var budgetsFile []byte

// budget is what a figure must not exceed, or fall below, and what to do when it does.
type budget struct {
	Figure string   `json:"figure"`
	Row    string   `json:"row"`  // of the results
	Unit   string   `json:"unit"` // of its metrics
	Most   *float64 `json:"most,omitempty"`
	Least  *float64 `json:"least,omitempty"`
	Source string   `json:"source"` // plan: of the architecture's benchmark plan; own: of this project
	Action string   `json:"action"`
}

func readBudgets() (all []budget, err error) {
	err = json.Unmarshal(budgetsFile, &all)
	return all, err
}

// most is the upper limit of a figure; zero if there is none.
func most(budgets []budget, row, unit string) float64 {
	for i := range budgets {
		if b := &budgets[i]; b.Row == row && b.Unit == unit && b.Most != nil {
			return *b.Most
		}
	}
	return 0
}

// verdict is how a budget fared.
type verdict string

// The verdicts.
const (
	met      verdict = "met"
	missed   verdict = "MISSED"
	unknown  verdict = "not measured"
	nothing          = "–"
	planPath         = "internal/benchmark/cmd/benchreport/budgets.json"
)

// judge looks the figure up, and compares.
func (b *budget) judge(results map[string]result) (measured string, v verdict) {
	value, ok := results[b.Row].value(b.Unit)
	switch {
	case !ok:
		return nothing, unknown
	case b.Most != nil && value > *b.Most, b.Least != nil && value < *b.Least:
		return figure(value), missed
	}
	return figure(value), met
}

// limit is the budget itself.
func (b *budget) limit() string {
	if b.Most != nil {
		return "≤ " + figure(*b.Most)
	}
	return "≥ " + figure(*b.Least)
}

// writePlan writes the benchmark plan: each budget with its figure, the verdict and the action.
func writePlan(w io.Writer, budgets []budget, results map[string]result) {
	fmt.Fprintf(w, "\n## The plan\n\nEach figure with its budget (from `%s`), what was measured last, and what to do "+
		"when it fails. A budget of the *plan* is one of the architecture that Tilefence implements; an *own* one is this project's.\n\n",
		planPath)
	writeBudgets(w, budgets, results)
}

// writeBudgets writes the table of some budgets.
func writeBudgets(w io.Writer, budgets []budget, results map[string]result) {
	fmt.Fprint(w, "| figure | budget | measured | verdict | source | when it fails |\n|---|---:|---:|---|---|---|\n")
	for i := range budgets {
		b := &budgets[i]
		measured, v := b.judge(results)
		fmt.Fprintf(w, "| %s (`%s`, %s) | %s | %s | %s | %s | %s |\n", b.Figure, b.Row, b.Unit, b.limit(), measured, v,
			b.Source, b.Action)
	}
}

// misses says which budgets are not met: a line for each.
func misses(budgets []budget, results map[string]result) string {
	var out strings.Builder
	for i := range budgets {
		if measured, v := budgets[i].judge(results); v != met {
			fmt.Fprintf(&out, "%s: %s (%s %s): %s, budget %s\n", v, budgets[i].Figure, budgets[i].Row, budgets[i].Unit,
				measured, budgets[i].limit())
		}
	}
	return out.String()
}
