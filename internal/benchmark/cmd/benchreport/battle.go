//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tilefence/tilefence/internal/benchmark/headline"
)

// shortBattles are what make bench plays of the headline.
func shortBattles() []headline.Size {
	return []headline.Size{{Players: 100, Window: 10 * time.Second}, {Players: 1000, Window: 15 * time.Second}}
}

// battles plays the battle at a few sizes.
func battles(ctx context.Context, o options, sizes []headline.Size) (*headline.Result, error) {
	return headline.Play(ctx, headline.Config{Sizes: sizes, Seed: o.seed, Log: os.Stderr})
}

// headlineResults are the figures of a headline as those of a benchmark, for the budgets.
func headlineResults(name string, h *headline.Result) (all []result) {
	for i := range h.Runs {
		run := &h.Runs[i]
		r := result{Name: fmt.Sprintf("%s/%d", name, run.Players)}
		diverged := 0.0
		if !run.Verdict.Converged {
			diverged = 1
		}
		r.Metrics = []metric{
			{run.Latency.CommitToClient.P50, "client-p50-ms"}, {run.Latency.CommitToClient.P99, "client-p99-ms"},
			{run.Traffic.BytesPerClientTick, "bytes/client-tick"}, {run.Ticks.Missed, "missed"},
			{run.Latency.Lateness.P99, "late-p99-ms"}, {run.Latency.Commit.P99, "commit-p99-ms"},
			{run.Servers(), "server-cores"}, {diverged, "diverged"},
			{run.OrdersPerPlayer(), "orders/player-s"},
		}
		all = append(all, r)
	}
	return all
}

// writeHeadline writes the table and the charts.
func writeHeadline(w io.Writer, h *headline.Result) {
	fmt.Fprintf(w, "\n## Ten thousand as one hundred\n\n`make headline` on %s: %s, %s, %d cores. The battle of "+
		"`examples/battle` on %d tiles, seed %d, a tick every %.0f ms. Redis clusters, PostgreSQL, a DynamoDB-compatible "+
		"server, %d tile hosts that follow each other's tiles, bridge, checkpointer, relay and gateway "+
		"are processes of their own on this one machine, with %s. "+
		"Each player has a WebSocket to the relay and one to the gateway, watches the areas around its ship, and checks that each frame follows the last. One in %d is an "+
		"ordinary bot, which folds what it is sent, verifies each batch's chain, and is compared with the owner in full "+
		"at the end; the others are `internal/benchmark/cmd/swarm`, which serves its sockets with one loop, and must "+
		"hold their owners' positions at the end. The first %.0f s after the last bot joined are not measured. A player draws a card every "+
		"%d ticks. A player waits for the answer to an order before it gives the next, so that late answers make fewer orders, and "+
		"fewer bytes. It watches areas of one tile: at the tile's rim there are fewer. "+
		"`anything else` is what other processes of the machine took of its processors meanwhile.\n\n%s\n",
		h.Machine.Date, h.Machine.Processor, h.Machine.Go, h.Machine.Cores, h.Tiles, h.Seed, h.TickMs, h.Hosts,
		h.Conditions, h.VerifyEvery, h.WarmUp, h.DrawEvery, h.Table())
	fmt.Fprint(w, "![Share of the frames by commit to client](headline-latency.svg)\n"+
		"![Bytes for each client and tick](headline-bytes.svg)\n![Processor cores by actor](headline-cores.svg)\n")
}
