package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/internal/figures"
)

// report is what a battle measured. Latencies are in milliseconds; commit-to-client is from the store's
// clock at the commit to the client's after folding, on one machine.
type report struct {
	Stack    string  `json:"stack"`
	Tiles    int     `json:"tiles"`
	Clients  int     `json:"clients"`
	Seconds  float64 `json:"seconds"`
	TickMs   float64 `json:"tick_ms"`
	Ticks    int64   `json:"ticks"`
	Late     int64   `json:"ticks_late"`
	Missed   int64   `json:"ticks_missed"`
	Commits  int64   `json:"commits"`
	Refresh  int64   `json:"refreshes"`
	Events   int64   `json:"events"`
	Intents  int64   `json:"intents"`
	Refusals int64   `json:"refusals"`

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
	BytesOut           uint64  `json:"relay_bytes_out"` // with the headers of WebSockets
	GapsRelay          uint64  `json:"relay_gaps"`
	RepairsRelay       int64   `json:"relay_gaps_repaired"`
	ColdReads          uint64  `json:"relay_cold_reads"`
	SharedReads        uint64  `json:"relay_shared_reads"` // of them, those that another relay could have made
	GapsClient         uint64  `json:"client_gaps"`
	RepairsClient      uint64  `json:"client_gaps_repaired"`
	StaleDrops         uint64  `json:"stale_drops"`
	SlowDrops          uint64  `json:"slow_client_drops"`

	Snapshots       int64            `json:"snapshots"`
	SnapshotsFailed int64            `json:"snapshots_failed"`
	Trimmed         int64            `json:"entries_trimmed"`
	Checkpoints     int64            `json:"checkpoints"`
	Takeovers       int64            `json:"takeovers"` // with the hand-overs
	Handovers       int64            `json:"handovers"`
	Reappended      int64            `json:"batches_reappended"`
	Installs        int64            `json:"ownership_changes"` // with the first of each tile
	Superseded      int64            `json:"supersessions"`
	LostTicks       int64            `json:"lost_ticks"` // with the coordination store, at most
	RefusedFor      map[string]int64 `json:"refused_for"`
	Rebases         int64            `json:"rebases"`
	Moves           int64            `json:"moves_sent"`
	MovesFailed     int64            `json:"moves_failed"`
	Cards           int64            `json:"cards_played"`
	Ledger          map[string]int64 `json:"ledger_outcomes"`

	Routing *spectator.Routing `json:"routing,omitempty"`

	Lobby   *lobbyReport `json:"lobby,omitempty"`
	Chaos   *chaosReport `json:"chaos,omitempty"`
	Audited int          `json:"cards_audited,omitempty"` // in the ledger with the outcome told

	Converged bool   `json:"converged"`
	Why       string `json:"why_not,omitempty"`
}

func newReport(p *plan) *report {
	return &report{Stack: cmp.Or(p.options.command, p.options.stack), Tiles: len(p.world), Clients: p.options.clients,
		TickMs: float64(p.options.tick) / float64(time.Millisecond)}
}

// fill takes the figures of one process.
func (r *report) fill(p *plan) {
	m := p.meters
	r.Ticks, r.Late, r.Missed = m.ticks.Load(), m.late.Load(), m.missed.Load()
	r.Commits, r.Refresh, r.Events, r.Intents = m.commits.Load(), m.refreshes.Load(), m.events.Load(), m.intents.Load()
	r.Refusals = m.refusals.Load()
	r.CommitLatency, r.CommitToClient = m.commitLatency.Latency(), m.clientLatency.Latency()
	r.TickLatency, r.SnapshotEncode = m.tickLatency.Latency(), m.encodeLatency.Latency()
	r.TickLateness = m.lateness.Latency()
	r.OrderLatency = m.orderLatency.Latency()
	r.ClientFrames, r.Joined = m.clientFrames.Load(), m.joined.Load()
	r.Snapshots, r.SnapshotsFailed, r.Trimmed = m.snapshots.Load(), m.snapshotsFailed.Load(), m.trimmed.Load()
	r.Handovers = m.handovers.Load()
	r.Checkpoints = m.checkpoints.Load()
	r.Takeovers, r.Reappended, r.Rebases = m.takeovers.Load(), m.reappended.Load(), m.rebases.Load()
	r.Installs, r.Superseded, r.LostTicks = m.installs.Load(), m.supersessions.Load(), m.lostTicks.Load()
	r.RefusedFor = m.refusedFor.snapshot()
	r.Moves, r.MovesFailed, r.Cards = m.moves.Load(), m.movesFailed.Load(), m.cards.Load()
	r.Ledger = m.outcomes.snapshot()
	r.Routing = m.routing()
	if p.re != nil {
		s := p.re.Stats()
		r.GapsRelay, r.RepairsRelay, r.ColdReads, r.SlowDrops = s.Gaps, m.relayRepairs.Load(), s.Repairs, s.SlowDrops
		r.SharedReads = s.Shared
		r.StaleDrops += s.StaleDrops
		r.BytesOut = s.BytesOut
	}
	if f := p.fleet.Load(); f != nil {
		s := f.stats()
		r.GapsClient, r.RepairsClient, r.ClientBytes = s.Gaps, s.Repaired, s.Bytes
		r.ClientSyncs, r.ClientResyncs, r.ClientCorrupt = s.Syncs, s.Resyncs, s.Corrupt
	}
	if r.ClientFrames > 0 {
		r.BytesPerClientTick = float64(r.ClientBytes) / float64(r.ClientFrames)
	}
	if p.br != nil {
		r.StaleDrops += p.br.Stats().Dropped.Superseded
	}
}

// write prints the report for a person or for a program.
func (r *report) write(form string, out io.Writer) error {
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
	line("ticks", "%d (%d late, %d missed), begun p99 %.1f ms after they were due",
		r.Ticks, r.Late, r.Missed, r.TickLateness.P99)
	line("commits", "%d with %d events, %d quiet ticks, %d refusals", r.Commits, r.Events, r.Refresh, r.Refusals)
	line("commit latency", "p50 %.2f ms, p99 %.2f ms", r.CommitLatency.P50, r.CommitLatency.P99)
	line("commit to client", "p50 %.1f ms, p99 %.1f ms, max %.1f ms (%d frames)",
		r.CommitToClient.P50, r.CommitToClient.P99, r.CommitToClient.Max, r.ClientFrames)
	line("per client and tick", "%.0f bytes", r.BytesPerClientTick)
	line("gaps", "%d at the relay (%d repaired, %d cold reads in all, %d shared), %d at clients (%d repaired)",
		r.GapsRelay, r.RepairsRelay, r.ColdReads, r.SharedReads, r.GapsClient, r.RepairsClient)
	line("dropped", "%d stale, %d for slow clients", r.StaleDrops, r.SlowDrops)
	line("snapshots", "%d (%d failed), %d entries trimmed, %d checkpoints",
		r.Snapshots, r.SnapshotsFailed, r.Trimmed, r.Checkpoints)
	line("ownership", "%d take-overs (%d of them handed over), %d batches re-appended, %d rebases",
		r.Takeovers, r.Handovers, r.Reappended, r.Rebases)
	line("orders", "%d moves (%d unanswered), %d cards: %s", r.Moves, r.MovesFailed, r.Cards, outcomeList(r.Ledger))
	if r.Routing != nil {
		line("routing", "%s", r.Routing)
	}
	if r.Lobby != nil {
		r.Lobby.write(line)
	}
	if r.Chaos != nil {
		line("audit", "%d cards have in the ledger the outcome their players were told, and cost that once", r.Audited)
		r.Chaos.write(line)
	}
	if r.Converged {
		line("converged", "yes: every client's view equals its owner's state")
	} else {
		line("converged", "NO: %s", r.Why)
	}
	return nil
}

// verdict is nil for a battle that ended as it must.
func (r *report) verdict() error {
	switch {
	case !r.Converged:
		return errNotConverged
	case r.Lobby != nil && r.Lobby.Why != "":
		return fmt.Errorf("%w: %s", errLobby, r.Lobby.Why)
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
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
