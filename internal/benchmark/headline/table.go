//go:build linux

package headline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// row is a line of the table: a name, and the figure of each battle.
type row struct {
	name string
	cell func(*Run) string
}

var rows = []row{
	{"commit to client p50 / p99 / max, ms", func(r *Run) string {
		l := r.Latency.CommitToClient
		return fmt.Sprintf("%.1f / %.1f / %.0f", l.P50, l.P99, l.Max)
	}},
	{"bytes a client and tick (with WebSocket headers)", func(r *Run) string {
		return fmt.Sprintf("%.0f (%.0f)", r.Traffic.BytesPerClientTick, r.Traffic.WirePerClientTick)
	}},
	{"ticks: played / missed", func(r *Run) string {
		return fmt.Sprintf("%.0f / %.0f", r.Ticks.Played, r.Ticks.Missed)
	}},
	{"ticks begin late by p50 / p99, ms", func(r *Run) string {
		return fmt.Sprintf("%.1f / %.1f", r.Latency.Lateness.P50, r.Latency.Lateness.P99)
	}},
	{"commit p50 / p99, ms", func(r *Run) string {
		return fmt.Sprintf("%.1f / %.1f", r.Latency.Commit.P50, r.Latency.Commit.P99)
	}},
	{"order to outcome p50 / p99, ms", func(r *Run) string {
		return fmt.Sprintf("%.0f / %.0f", r.Latency.Order.P50, r.Latency.Order.P99)
	}},
	{"orders a second (without an answer)", func(r *Run) string {
		return fmt.Sprintf("%.0f (%.0f in all)", r.orders(), r.Orders.Failed)
	}},
	{"orders refused a second, within p99, ms", func(r *Run) string {
		return fmt.Sprintf("%.0f, %.0f", r.Orders.Refused/r.Seconds, r.Latency.Refusal.P99)
	}},
	{"orders a second and player", func(r *Run) string { return fmt.Sprintf("%.2f", r.OrdersPerPlayer()) }},
	{"cards: outcomes in the ledger", func(r *Run) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(r.Orders.Ledger)) {
			parts = append(parts, fmt.Sprintf("%.0f %s", r.Orders.Ledger[name], name))
		}
		return strings.Join(parts, ", ")
	}},
	{"dropped: for slow clients / of superseded owners", func(r *Run) string {
		return fmt.Sprintf("%.0f / %.0f", r.Traffic.Dropped, r.Traffic.Stale)
	}},
	{"clients: gaps / resyncs / corrupt", func(r *Run) string {
		return fmt.Sprintf("%.0f / %.0f / %.0f", r.Traffic.Gaps, r.Traffic.Resyncs, r.Traffic.Corrupt)
	}},
	{"cores: servers and actors / bots / anything else", func(r *Run) string {
		s, all := r.Servers(), 0.0
		for _, u := range r.Actors {
			all += u.Cores
		}
		return fmt.Sprintf("%.2f / %.2f / %.2f", s, all-s, r.Overhead)
	}},
	{"joined within, s", func(r *Run) string { return fmt.Sprintf("%.0f", r.Joining) }},
	{"measured, s", func(r *Run) string { return fmt.Sprintf("%.0f", r.Seconds) }},
	{"converged (compared in full)", func(r *Run) string {
		if !r.Verdict.Converged {
			return "NO: " + r.Verdict.Why
		}
		return fmt.Sprintf("yes (%d)", r.Verified)
	}},
	{"clean exits", func(r *Run) string {
		if len(r.Verdict.Unclean) > 0 {
			return "NO: " + strings.Join(r.Verdict.Unclean, "; ")
		}
		return "yes"
	}},
}

// orders are those with an outcome a second.
func (r *Run) orders() float64 {
	return (r.Orders.Moves - r.Orders.Failed - r.Orders.Refused + r.Orders.Cards) / r.Seconds
}

// OrdersPerPlayer is how many orders a player gave a second.
func (r *Run) OrdersPerPlayer() float64 { return r.orders() / float64(r.Players) }

// Table is the result in Markdown: a column for each battle.
func (r *Result) Table() string {
	var b strings.Builder
	head, rule := "| |", "|---|"
	for i := range r.Runs {
		head += " " + r.Runs[i].size().String() + " |"
		rule += "---:|"
	}
	fmt.Fprintf(&b, "%s\n%s\n", head, rule)
	line := func(name string, cell func(*Run) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for i := range r.Runs {
			fmt.Fprintf(&b, " %s |", cell(&r.Runs[i]))
		}
		b.WriteByte('\n')
	}
	for _, row := range rows {
		line(row.name, row.cell)
	}
	for _, name := range r.actorNames() {
		line(name+": cores, MiB", func(run *Run) string {
			for _, u := range run.Actors {
				if u.Name == name {
					return fmt.Sprintf("%.2f, %.0f", u.Cores, u.MiB)
				}
			}
			return ""
		})
	}
	return b.String()
}

// actorNames are the kinds of processes of all battles, the hungriest of the last one first.
func (r *Result) actorNames() (names []string) {
	for i := len(r.Runs) - 1; i >= 0; i-- {
		for _, u := range r.Runs[i].Actors {
			if !slices.Contains(names, u.Name) {
				names = append(names, u.Name)
			}
		}
	}
	return names
}
