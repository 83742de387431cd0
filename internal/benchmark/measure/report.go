package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/internal/benchmark/census"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/statuspoller"
)

// ErrNotConverged is a battle after which some client did not see what the owners decided.
var ErrNotConverged = errors.New("the views did not converge")

// Report is what a battle measured. Latencies are in milliseconds; commit-to-client is from the store's
// clock at the commit to the client's after folding, on one machine.
type Report struct {
	Stack   string  `json:"stack"`
	Tiles   int     `json:"tiles"`
	Clients int     `json:"clients"`
	Seconds float64 `json:"seconds"`
	TickMs  float64 `json:"tick_ms"`

	CommitLatency  figures.Latency `json:"commit_latency"`
	CommitToClient figures.Latency `json:"commit_to_client"`
	TickLatency    figures.Latency `json:"tick_latency"`
	TickLateness   figures.Latency `json:"tick_lateness"` // from when a tick was due to its beginning
	SnapshotEncode figures.Latency `json:"snapshot_encode"`
	OrderLatency   figures.Latency `json:"order_latency"` // from sending an order to its outcome, a tick included

	BytesPerClientTick float64 `json:"bytes_per_client_tick"`
	Joined             int64   `json:"bots_joined"`
	ClientFrames       int64   `json:"client_frames"`
	ClientBytes        uint64  `json:"client_bytes"`
	ClientSyncs        uint64  `json:"client_syncs"`
	ClientResyncs      uint64  `json:"client_resyncs"`
	ClientCorrupt      uint64  `json:"client_corrupt"`
	GapsClient         uint64  `json:"client_gaps"`
	RepairsClient      uint64  `json:"client_gaps_repaired"`

	Moves       int64            `json:"moves_sent"`
	MovesFailed int64            `json:"moves_failed"`
	Refused     int64            `json:"moves_refused"`
	Cards       int64            `json:"cards_played"`
	Ledger      map[string]int64 `json:"ledger_outcomes"`

	Servers statuspoller.Totals   `json:"servers"` // the library's metrics
	Routing *statuspoller.Routing `json:"routing,omitempty"`

	Lobby   *census.Report `json:"lobby,omitempty"`
	Chaos   *chaos.Report  `json:"chaos,omitempty"`
	Audited int            `json:"cards_audited,omitempty"` // in the ledger with the outcome told

	Census *players.Census `json:"census,omitempty"` // of the ships

	Converged bool   `json:"converged"`
	Why       string `json:"why_not,omitempty"`
}

// Ended takes how the battle ended for the bots.
func (r *Report) Ended(end players.Result) {
	r.Seconds, r.Converged, r.Why = end.Played.Seconds(), end.Converged, end.Why
}

// Fill takes the figures of one process: what it has measured, its bots, if it has any, and the library's metrics.
func (r *Report) Fill(m *Meters, f *players.Fleet, servers statuspoller.Totals) {
	r.CommitLatency, r.CommitToClient = m.commitLatency.Latency(), m.Players.Latency.Latency()
	r.TickLatency, r.SnapshotEncode = m.tickLatency.Latency(), m.encodeLatency.Latency()
	r.TickLateness, r.OrderLatency = m.lateness.Latency(), m.Players.OrderLatency.Latency()
	r.ClientFrames, r.Joined = m.Players.Frames.Load(), m.Players.Joined.Load()
	r.Moves, r.MovesFailed = m.Players.Moves.Load(), m.Players.MovesFailed.Load()
	r.Refused = m.Players.MovesRefused.Load()
	r.Cards = m.Players.Cards.Load()
	r.Ledger, r.Routing = m.Players.Outcomes.Counts(), m.Routing()
	if f != nil {
		s := f.Stats()
		r.GapsClient, r.RepairsClient, r.ClientBytes = s.Gaps, s.Repaired, s.Bytes
		r.ClientSyncs, r.ClientResyncs, r.ClientCorrupt = s.Syncs, s.Resyncs, s.Corrupt
	}
	if r.ClientFrames > 0 {
		r.BytesPerClientTick = float64(r.ClientBytes) / float64(r.ClientFrames)
	}
	r.Servers = servers
}

// Write prints the report for a person or for a program.
func (r *Report) Write(form string, out io.Writer) error {
	switch form {
	case "none":
		return nil
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "\nBattle on %s: %d tiles, %d clients, %.0f s\n\n", r.Stack, r.Tiles, r.Clients, r.Seconds)
	n := r.Servers
	line("ticks", "%.0f (%.0f missed), begun p99 %.1f ms after they were due", n["tile_tick_seconds"],
		n["tile_missed_ticks_total"], r.TickLateness.P99)
	line("commits", "%.0f with %.0f events, %.0f quiet ticks, %.0f refusals", n["tile_commit_seconds"],
		n["tile_events_total"], n["tile_refreshes_total"], n["tile_commit_refusals_total"])
	line("commit latency", "p50 %.2f ms, p99 %.2f ms", r.CommitLatency.P50, r.CommitLatency.P99)
	line("commit to client", "p50 %.1f ms, p99 %.1f ms, max %.1f ms (%d frames)",
		r.CommitToClient.P50, r.CommitToClient.P99, r.CommitToClient.Max, r.ClientFrames)
	line("per client and tick", "%.0f bytes", r.BytesPerClientTick)
	line("gaps", "%.0f at the relay (%.0f cold reads in all, %.0f shared), %d at clients (%d repaired)",
		n["relay_gaps_total"], n["relay_repairs_total"], n["relay_shared_total"], r.GapsClient, r.RepairsClient)
	line("dropped", "%.0f stale, %.0f for slow clients",
		n["relay_stale_drops_total"]+n["bridge_dropped_total/superseded"], n["relay_slow_drops_total"])
	line("snapshots", "%.0f (%.0f failed), %.0f entries trimmed, %.0f checkpoints", n["tile_snapshots_total/saved"],
		n["tile_snapshots_total/failed"], n["tile_trimmed_entries_total"], n["checkpoint_write_seconds"])
	line("ownership", "%.0f take-overs (%.0f of them handed over), %.0f batches re-appended, %.0f rebases",
		n["tile_takeover_seconds"], n["tile_takeover_seconds/handed_over"], n["tile_reappended_batches_total"],
		n["tile_heals_total/rebased"])
	line("orders", "%d moves (%d unanswered, %d refused), %d cards: %s", r.Moves, r.MovesFailed, r.Refused, r.Cards,
		outcomeList(r.Ledger))
	if r.Routing != nil {
		line("routing", "%s", r.Routing)
	}
	if r.Lobby != nil {
		r.Lobby.Write(line)
	}
	if r.Chaos != nil {
		line("audit", "%d cards have in the ledger the outcome their players were told, and cost that once", r.Audited)
		r.Chaos.Write(line)
	}
	if r.Census != nil {
		line("census", "%s", r.Census)
	}
	if r.Converged {
		line("converged", "yes: every client's view equals its owner's state")
	} else {
		line("converged", "NO: %s", r.Why)
	}
	return nil
}

// Verdict is nil for a battle that ended as it must.
func (r *Report) Verdict() error {
	switch {
	case !r.Converged:
		return ErrNotConverged
	case r.Census != nil && r.Census.Err() != nil:
		return r.Census.Err()
	case r.Lobby != nil && r.Lobby.Why != "":
		return fmt.Errorf("%w: %s", census.ErrLobby, r.Lobby.Why)
	}
	return nil
}

func outcomeList(m map[string]int64) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, fmt.Sprintf("%d %s", v, k))
	}
	if len(parts) == 0 {
		return "none answered"
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Cut is what a process has counted so far, as its report has it, and the histograms since the last cut, so that a
// harness can leave out a warm-up.
func (r *Report) Cut(m *Meters) (figures.Set, error) {
	text, err := json.Marshal(r)
	var flat map[string]any
	if err = errors.Join(err, json.Unmarshal(text, &flat)); err != nil {
		return figures.Set{}, err
	}
	return figures.Set{Counters: figures.Flatten(flat), Histograms: map[string]figures.Sample{
		"commit": m.commitLatency.Cut(), "commit_to_client": m.Players.Latency.Cut(), "lateness": m.lateness.Cut(),
		"tick": m.tickLatency.Cut(), "encode": m.encodeLatency.Cut(), "order": m.Players.OrderLatency.Cut(),
	}}, nil
}
