package prommetrics

import (
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// tile attaches metrics to the hooks of tiles.
func (m *Metrics) tile(h *tile.Hooks) {
	t := once(m, "tile", tileHooks)
	hook.Attach(&h.Transition, t.Transition)
	hook.Attach(&h.Ticked, t.Ticked)
	hook.Attach(&h.Committed, t.Committed)
	hook.Attach(&h.Refused, t.Refused)
	hook.Attach(&h.Snapshotted, t.Snapshotted)
	hook.Attach(&h.Healed, t.Healed)
	hook.Attach(&h.TookOver, t.TookOver)
	hook.Attach(&h.Restored, t.Restored)
	hook.Attach(&h.RulesFailed, t.RulesFailed)
	hook.Attach(&h.Quarantined, t.Quarantined)
	hook.Attach(&h.Diverged, t.Diverged)
	hook.Attach(&h.Impure, t.Impure)
	more, own := t.Forgotten, h.Forgotten
	h.Forgotten = func(id fence.TileID, at fence.Position) {
		more(id, at)
		if own != nil {
			own(id, at)
		}
	}
}

func tileHooks(m *Metrics) *tile.Hooks {
	transitions := counters(m, "tile_transitions_total", "States that processors have entered.", "to", tile.Following,
		tile.Claiming, tile.Replaying, tile.Installing, tile.Serving, tile.Healing, tile.Draining, tile.StoodDown,
		tile.Stopped)
	rulesFailed := counters(m, "tile_rules_failures_total", "Failures of the game's rules, by their method.", "call",
		"New", "Resolve", "Apply", "Snapshot", "Restore", "Inspect")
	quarantined := counter(m, "tile_quarantines_total",
		"Tiles whose history could not be folded, and that were quarantined.")
	forgotten := counter(m, "tile_forgotten_batches_total",
		"Batches dropped from memory before replicas had confirmed them.")
	impure := counter(m, "tile_impure_ticks_total", "Ticks in which Resolve has changed the state.")
	diverged := counter(m, "tile_divergences_total", "Times that a follower's state was not the owner's.")
	return &tile.Hooks{
		Transition:  func(i tile.TransitionInfo) { transitions.of(i.To).Inc() },
		Ticked:      ticked(m),
		Committed:   committed(m),
		Refused:     refused(m),
		Snapshotted: snapshotted(m),
		Healed:      healed(m),
		TookOver:    tookOver(m),
		Restored:    restored(m),
		RulesFailed: func(e *tile.RulesError) { rulesFailed.of(e.Call).Inc() },
		Quarantined: func(*tile.QuarantinedError) { quarantined.Inc() },
		Diverged:    func(tile.DivergenceInfo) { diverged.Inc() },
		Impure:      func(tile.ImpurityInfo) { impure.Inc() },
		Forgotten:   func(fence.TileID, fence.Position) { forgotten.Inc() },
	}
}

func ticked(m *Metrics) func(tile.TickInfo) {
	tick := histogram(m, "tile_tick_seconds", "Ticks from their begin to the answer of the commit.", quick)
	late := histogram(m, "tile_tick_late_seconds", "How much after its due time a tick began.", quick)
	resolve := histogram(m, "tile_resolve_seconds", "What of a tick the game's rules took.", quick)
	missed := counter(m, "tile_missed_ticks_total", "Tick times that passed while the tick before ran or waited.")
	pending := counter(m, "tile_pending_ticks_total", "Ticks that ended without knowing the fate of a batch.")
	intents := counter(m, "tile_intents_total", "Intents that ticks have resolved.")
	events := counter(m, "tile_events_total", "Events of the rules.")
	return func(i tile.TickInfo) {
		seconds(tick, i.Took)
		seconds(late, i.Late)
		seconds(resolve, i.Resolve)
		addSome(missed, i.Missed)
		addSome(intents, i.Intents)
		addSome(events, i.Events)
		if i.Pending {
			pending.Inc()
		}
	}
}

func committed(m *Metrics) func(tile.CommitInfo) {
	commit := histograms(m, "tile_commit_seconds", "Commits of batches, from first presentation to the answer.", quick,
		"durability", tile.Checkpointed, tile.Replicated, tile.WriteThrough, tile.ReplicatedActions,
		tile.WriteBehind)
	confirming := histogram(m, "tile_confirm_seconds", "Waits until enough replicas had a batch.", quick)
	journal := histogram(m, "tile_journal_seconds", "What of a commit the journal took.", quick)
	bytes := counter(m, "tile_committed_bytes_total", "Payload of committed batches.")
	refreshes := counter(m, "tile_refreshes_total", "Refreshes of owner hashes.")
	crossings := counters(m, "tile_crossings_total", "Entities at borders: that departed, were taken from other tiles "+
		"or refused, were taken back, or were parked because the rules fail with them.", "step", "departed", "arrived",
		"refused", "returned", "parked")
	return func(i tile.CommitInfo) {
		if i.Refresh {
			refreshes.Inc()
			return
		}
		seconds(commit.of(i.Durability), i.Took)
		addSome(crossings.of("departed"), i.Departures)
		addSome(crossings.of("arrived"), i.Arrivals)
		addSome(crossings.of("refused"), i.Refused)
		addSome(crossings.of("returned"), i.Returns)
		addSome(crossings.of("parked"), i.Parked)
		addSome(bytes, i.Bytes)
		if i.Confirming > 0 {
			seconds(confirming, i.Confirming)
		}
		if i.Journaling > 0 {
			seconds(journal, i.Journaling)
		}
	}
}

// refusals are why a commit can fail, the first that matches.
var refusals = []struct {
	err  error
	name string
}{
	{fence.ErrStale, "stale"}, {fence.ErrNoOwner, "no_owner"}, {fence.ErrBehind, "behind"}, {fence.ErrReplay, "replay"},
	{fence.ErrForked, "forked"}, {fence.ErrRegress, "regress"}, {fence.ErrUnconfirmed, "unconfirmed"},
	{fence.ErrUnknownOutcome, "unknown_outcome"}, {fence.ErrNotApplied, "not_applied"},
}

func refused(m *Metrics) func(tile.RefusalInfo) {
	names := make([]string, len(refusals))
	for i, r := range refusals {
		names[i] = r.name
	}
	reasons := counters(m, "tile_commit_refusals_total",
		"Commits that the store refused, or could not be asked for.", "reason", names...)
	return func(i tile.RefusalInfo) {
		for _, r := range refusals {
			if errors.Is(i.Err, r.err) {
				reasons.of(r.name).Inc()
				return
			}
		}
		reasons.other.Inc()
	}
}

func snapshotted(m *Metrics) func(tile.SnapshotInfo) {
	encode := histogram(m, "tile_snapshot_encode_seconds", "What a snapshot took of the tick loop.", quick)
	save := histogram(m, "tile_snapshot_save_seconds", "Saving a snapshot and trimming, beside the tick loop.", quick)
	size := histogram(m, "tile_snapshot_bytes", "Size of snapshots.", sizes)
	results := counters(m, "tile_snapshots_total", "Attempts at a snapshot and the trim behind it.", "result", "saved",
		"failed")
	alarms := counter(m, "tile_stream_alarms_total", "Trims that left a stream near its bound of memory.")
	trim := trimmed(m)
	return func(i tile.SnapshotInfo) {
		if i.Err != nil {
			results.of("failed").Inc()
		} else {
			results.of("saved").Inc()
			seconds(encode, i.Encode)
			seconds(save, i.Save)
			size.Observe(float64(i.Bytes))
		}
		if i.Alarm {
			alarms.Inc()
		}
		if i.Trimmed != nil {
			trim(i.Trimmed)
		}
	}
}

func trimmed(m *Metrics) func(*stream.Trimmed) {
	kinds := append(stream.Kinds(), stream.ConsumerGroup)
	bytes := histogram(m, "tile_stream_bytes", "Memory of streams, as seen by each trim.", sizes)
	removed := counter(m, "tile_trimmed_entries_total", "Entries that trims removed.")
	held := counters(m, "tile_trims_total", "Trims, by the kind of consumer that holds the floor.", "held_by",
		append([]stream.Consumer{"snapshot"}, kinds...)...)
	expired := counters(m, "tile_expired_marks_total", "Consumers that no longer hold a stream: silent for a lease.",
		"consumer", kinds...)
	evicted := counters(m, "tile_evicted_marks_total", "Consumers that no longer hold a stream: it was at its bound.",
		"consumer", kinds...)
	return func(t *stream.Trimmed) {
		by := t.Held.Kind()
		if by == "" {
			by = "snapshot"
		}
		held.of(by).Inc()
		bytes.Observe(float64(t.Bytes))
		addSome(removed, t.Removed)
		for _, c := range t.Expired {
			expired.of(c.Kind()).Inc()
		}
		for _, c := range t.Evicted {
			evicted.of(c.Kind()).Inc()
		}
	}
}

func healed(m *Metrics) func(tile.HealInfo) {
	heals := counters(m, "tile_heals_total", "Repairs of a tile's history after a failover or a fork.", "how",
		"reappended", "rebased", "rejoined", "reclaimed")
	reappended := counter(m, "tile_reappended_batches_total", "Batches written again that a failover had lost.")
	return func(i tile.HealInfo) {
		switch {
		case i.Rebased:
			heals.of("rebased").Inc()
		case i.Rejoined:
			heals.of("rejoined").Inc()
		case i.Reclaimed:
			heals.of("reclaimed").Inc()
		default:
			heals.of("reappended").Inc()
		}
		addSome(reappended, i.Reappended)
	}
}

func tookOver(m *Metrics) func(tile.TakeoverInfo) {
	takeover := histograms(m, "tile_takeover_seconds", "Take-overs by followers, from the question for an epoch.", slow,
		"why", tile.SilentOwner, tile.OwnerDied, tile.HandedOver, tile.Ordered)
	silent := histogram(m, "tile_takeover_silent_seconds",
		"How long an owner was silent before it was suspected.", slow)
	phases := histograms(m, "tile_takeover_phase_seconds", "Parts of take-overs.", slow, "phase", "asked", "minted",
		"replayed", "installed")
	return func(i tile.TakeoverInfo) {
		seconds(takeover.of(i.Why), i.Minted+i.Replayed+i.Installed)
		seconds(silent, i.Silent)
		seconds(phases.of("asked"), i.Asked)
		seconds(phases.of("minted"), i.Minted)
		seconds(phases.of("replayed"), i.Replayed)
		seconds(phases.of("installed"), i.Installed)
	}
}

func restored(m *Metrics) func(tile.RestoredInfo) {
	from := counters(m, "tile_restored_total",
		"Tiles that go on although the coordination store had lost their history.", "from", "memory", "durable")
	lostTicks := counter(m, "tile_lost_ticks_total", "Acknowledged ticks that were lost, at most.")
	lostTime := counter(m, "tile_lost_seconds_total", "The time that the lost ticks lasted, at most.")
	return func(i tile.RestoredInfo) {
		if i.FromMemory {
			from.of("memory").Inc()
		} else {
			from.of("durable").Inc()
		}
		lostTicks.Add(float64(i.LostTicks))
		lostTime.Add(max(0, i.LostFor.Seconds()))
	}
}

// host attaches metrics to the hooks of a host.
func (m *Metrics) host(h *tilehost.Hooks) {
	t := once(m, "tilehost", hostHooks)
	hook.Attach(&h.Ended, t.Ended)
	hook.Attach(&h.Promoted, t.Promoted)
}

func hostHooks(m *Metrics) *tilehost.Hooks {
	ended := counters(m, "tilehost_ended_total",
		"Processors that ended, by why.", "why", "drained", "superseded", "lost", "quarantined", "failed")
	promoted := histograms(m, "tilehost_promotion_seconds",
		"Claims and take-overs, from their turn until the tile served or the attempt failed.", slow, "why",
		tile.Suspicion(0), tile.SilentOwner, tile.OwnerDied, tile.HandedOver, tile.Ordered)
	waited := histogram(m, "tilehost_promotion_wait_seconds", "Waits of claims and take-overs for their turn.", slow)
	return &tilehost.Hooks{
		Ended: func(i tilehost.EndInfo) { ended.of(ending(i.Err)).Inc() },
		Promoted: func(i tilehost.PromotionInfo) {
			seconds(promoted.of(i.Why), i.Took)
			seconds(waited, i.Waited)
		},
	}
}

func ending(err error) string {
	switch {
	case err == nil:
		return "drained"
	case errors.Is(err, tile.ErrSuperseded):
		return "superseded"
	case errors.Is(err, fence.ErrLost):
		return "lost"
	case errors.Is(err, tile.ErrQuarantined):
		return "quarantined"
	}
	return "failed"
}
