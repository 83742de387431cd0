package prommetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// tileMetrics are what the hooks of all tiles of a process write to.
type tileMetrics struct {
	tickMetrics
	commitMetrics
	snapshotMetrics
	takeoverMetrics

	transitions by[tile.State, prometheus.Counter]
	heals       by[string, prometheus.Counter]
	reappended  prometheus.Counter
	restored    by[string, prometheus.Counter]
	lostTicks   prometheus.Counter
	lostTime    prometheus.Counter
	rulesFailed by[string, prometheus.Counter]
	quarantined prometheus.Counter
	forgotten   prometheus.Counter
	diverged    prometheus.Counter
	impure      prometheus.Counter
}

type tickMetrics struct {
	tick, late, resolve             prometheus.Observer
	missed, pending, intents, event prometheus.Counter
}

type commitMetrics struct {
	commit              by[tile.Durability, prometheus.Observer]
	confirming, journal prometheus.Observer
	bytes, refreshes    prometheus.Counter
	refused             by[error, prometheus.Counter]
}

type snapshotMetrics struct {
	encode, save, size, stream prometheus.Observer
	snapshots                  by[string, prometheus.Counter]
	alarms, removed            prometheus.Counter

	held, expired, evicted by[stream.Consumer, prometheus.Counter]
}

type takeoverMetrics struct {
	takeover by[tile.Suspicion, prometheus.Observer]
	silent   prometheus.Observer
	phases   by[string, prometheus.Observer]
}

// refusals are why a commit can fail, the first that matches.
var refusals = []error{fence.ErrStale, fence.ErrNoOwner, fence.ErrBehind, fence.ErrReplay, fence.ErrForked,
	fence.ErrRegress, fence.ErrUnconfirmed, fence.ErrUnknownOutcome, fence.ErrNotApplied}

var refusalNames = []string{"stale", "no_owner", "behind", "replay", "forked", "regress", "unconfirmed",
	"unknown_outcome", "not_applied"}

func newTileMetrics(m *Metrics) *tileMetrics {
	const p = "tile"
	return &tileMetrics{
		tickMetrics: newTickMetrics(m), commitMetrics: newCommitMetrics(m), snapshotMetrics: newSnapshotMetrics(m),
		takeoverMetrics: newTakeoverMetrics(m),
		transitions: counters(m, p, "transitions_total", "States that processors have entered.", "to", tile.Following,
			tile.Claiming, tile.Replaying, tile.Installing, tile.Serving, tile.Healing, tile.Draining, tile.StoodDown,
			tile.Stopped),
		heals: counters(m, p, "heals_total", "Repairs of a tile's history after a failover or a fork.", "how",
			"reappended", "rebased", "rejoined"),
		reappended: counter(m, p, "reappended_batches_total", "Batches written again that a failover had lost."),
		restored: counters(m, p, "restored_total",
			"Tiles that go on although the coordination store had lost their history.", "from", "memory", "durable"),
		lostTicks: counter(m, p, "lost_ticks_total", "Acknowledged ticks that were lost, at most."),
		lostTime:  counter(m, p, "lost_seconds_total", "The time that the lost ticks lasted, at most."),
		rulesFailed: counters(m, p, "rules_failures_total", "Failures of the game's rules, by their method.", "call",
			"New", "Resolve", "Apply", "Snapshot", "Restore", "Inspect"),
		quarantined: counter(m, p, "quarantines_total",
			"Tiles whose history could not be folded, and that were quarantined."),
		forgotten: counter(m, p, "forgotten_batches_total",
			"Batches dropped from memory before replicas had confirmed them."),
		impure:   counter(m, p, "impure_ticks_total", "Ticks in which Resolve has changed the state."),
		diverged: counter(m, p, "divergences_total", "Times that a follower's state was not the owner's."),
	}
}

func newTickMetrics(m *Metrics) tickMetrics {
	const p = "tile"
	return tickMetrics{
		tick:    histogram(m, p, "tick_seconds", "Ticks from their begin to the answer of the commit.", quick),
		late:    histogram(m, p, "tick_late_seconds", "How much after its due time a tick began.", quick),
		resolve: histogram(m, p, "resolve_seconds", "What of a tick the game's rules took.", quick),
		missed:  counter(m, p, "missed_ticks_total", "Tick times that passed while the tick before ran or waited."),
		pending: counter(m, p, "pending_ticks_total", "Ticks that ended without knowing the fate of a batch."),
		intents: counter(m, p, "intents_total", "Intents that ticks have resolved."),
		event:   counter(m, p, "events_total", "Events of the rules."),
	}
}

func newCommitMetrics(m *Metrics) commitMetrics {
	const p = "tile"
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: p,
		Name: "commit_refusals_total", Help: "Commits that the store refused, or could not be asked for."},
		[]string{"reason"})
	m.add(refused)
	known := map[error]prometheus.Counter{}
	for i, err := range refusals {
		known[err] = refused.WithLabelValues(refusalNames[i])
	}
	return commitMetrics{
		commit: histograms(m, p, "commit_seconds", "Commits of batches, from first presentation to the answer.", quick,
			"durability", tile.Checkpointed, tile.Replicated, tile.WriteThrough,
			tile.ReplicatedActions),
		confirming: histogram(m, p, "confirm_seconds", "Waits until enough replicas had a batch.", quick),
		journal:    histogram(m, p, "journal_seconds", "What of a commit the journal took.", quick),
		bytes:      counter(m, p, "committed_bytes_total", "Payload of committed batches."),
		refreshes:  counter(m, p, "refreshes_total", "Refreshes of owner hashes."),
		refused:    by[error, prometheus.Counter]{known: known, other: refused.WithLabelValues("other")},
	}
}

func newSnapshotMetrics(m *Metrics) snapshotMetrics {
	const p = "tile"
	kinds := append(stream.Kinds(), stream.ConsumerGroup)
	return snapshotMetrics{
		encode: histogram(m, p, "snapshot_encode_seconds", "What a snapshot took of the tick loop.", quick),
		save: histogram(m, p, "snapshot_save_seconds",
			"Saving a snapshot and trimming, beside the tick loop.", quick),
		size:   histogram(m, p, "snapshot_bytes", "Size of snapshots.", sizes),
		stream: histogram(m, p, "stream_bytes", "Memory of streams, as seen by each trim.", sizes),
		snapshots: counters(m, p, "snapshots_total",
			"Attempts at a snapshot and the trim behind it.", "result", "saved",
			"failed"),
		alarms:  counter(m, p, "stream_alarms_total", "Trims that left a stream near its bound of memory."),
		removed: counter(m, p, "trimmed_entries_total", "Entries that trims removed."),
		held: counters(m, p, "trims_total", "Trims, by the kind of consumer that holds the floor.", "held_by",
			append([]stream.Consumer{"snapshot"}, kinds...)...),
		expired: counters(m, p, "expired_marks_total", "Consumers that no longer hold a stream: silent for a lease.",
			"consumer", kinds...),
		evicted: counters(m, p, "evicted_marks_total", "Consumers that no longer hold a stream: it was at its bound.",
			"consumer", kinds...),
	}
}

func newTakeoverMetrics(m *Metrics) takeoverMetrics {
	const p = "tile"
	return takeoverMetrics{
		takeover: histograms(m, p, "takeover_seconds", "Take-overs by followers, from the question for an epoch.", slow,
			"why", tile.SilentOwner, tile.OwnerDied, tile.HandedOver, tile.Ordered),
		silent: histogram(m, p, "takeover_silent_seconds",
			"How long an owner was silent before it was suspected.", slow),
		phases: histograms(m, p, "takeover_phase_seconds", "Parts of take-overs.", slow, "phase", "asked", "minted",
			"replayed", "installed"),
	}
}

// Tile attaches metrics to the hooks of tiles.
func (m *Metrics) Tile(h *tile.Hooks) {
	t := once(m, "tile", newTileMetrics)
	attach(&h.Transition, func(i tile.TransitionInfo) { t.transitions.of(i.To).Inc() })
	attach(&h.Ticked, t.ticked)
	attach(&h.Committed, t.committed)
	attach(&h.Refused, t.refuse)
	attach(&h.Snapshotted, t.snapshotted)
	attach(&h.Healed, t.healed)
	attach(&h.TookOver, t.tookOver)
	attach(&h.Restored, t.restore)
	attach(&h.RulesFailed, func(e *tile.RulesError) { t.rulesFailed.of(e.Call).Inc() })
	attach(&h.Quarantined, func(*tile.QuarantinedError) { t.quarantined.Inc() })
	attach(&h.Diverged, func(tile.DivergenceInfo) { t.diverged.Inc() })
	attach(&h.Impure, func(tile.ImpurityInfo) { t.impure.Inc() })
	own := h.Forgotten
	h.Forgotten = func(id fence.TileID, at fence.Position) {
		t.forgotten.Inc()
		if own != nil {
			own(id, at)
		}
	}
}

func (t *tileMetrics) ticked(i tile.TickInfo) {
	seconds(t.tick, i.Took)
	seconds(t.late, i.Late)
	seconds(t.resolve, i.Resolve)
	addSome(t.missed, i.Missed)
	addSome(t.intents, i.Intents)
	addSome(t.event, i.Events)
	if i.Pending {
		t.pending.Inc()
	}
}

func (t *tileMetrics) committed(i tile.CommitInfo) {
	if i.Refresh {
		t.refreshes.Inc()
		return
	}
	seconds(t.commit.of(i.Durability), i.Took)
	addSome(t.bytes, i.Bytes)
	if i.Confirming > 0 {
		seconds(t.confirming, i.Confirming)
	}
	if i.Journaling > 0 {
		seconds(t.journal, i.Journaling)
	}
}

func (t *tileMetrics) refuse(i tile.RefusalInfo) {
	for _, known := range refusals {
		if errors.Is(i.Err, known) {
			t.refused.of(known).Inc()
			return
		}
	}
	t.refused.other.Inc()
}

func (t *tileMetrics) snapshotted(i tile.SnapshotInfo) {
	if i.Err != nil {
		t.snapshots.of("failed").Inc()
	} else {
		t.snapshots.of("saved").Inc()
		seconds(t.encode, i.Encode)
		seconds(t.save, i.Save)
		t.size.Observe(float64(i.Bytes))
	}
	if i.Alarm {
		t.alarms.Inc()
	}
	if i.Trimmed == nil {
		return
	}
	by := i.Trimmed.Held.Kind()
	if by == "" {
		by = "snapshot"
	}
	t.held.of(by).Inc()
	t.stream.Observe(float64(i.Trimmed.Bytes))
	addSome(t.removed, i.Trimmed.Removed)
	for _, c := range i.Trimmed.Expired {
		t.expired.of(c.Kind()).Inc()
	}
	for _, c := range i.Trimmed.Evicted {
		t.evicted.of(c.Kind()).Inc()
	}
}

func (t *tileMetrics) healed(i tile.HealInfo) {
	switch {
	case i.Rebased:
		t.heals.of("rebased").Inc()
	case i.Rejoined:
		t.heals.of("rejoined").Inc()
	default:
		t.heals.of("reappended").Inc()
	}
	addSome(t.reappended, i.Reappended)
}

func (t *tileMetrics) tookOver(i tile.TakeoverInfo) {
	seconds(t.takeover.of(i.Why), i.Minted+i.Replayed+i.Installed)
	seconds(t.silent, i.Silent)
	seconds(t.phases.of("asked"), i.Asked)
	seconds(t.phases.of("minted"), i.Minted)
	seconds(t.phases.of("replayed"), i.Replayed)
	seconds(t.phases.of("installed"), i.Installed)
}

func (t *tileMetrics) restore(i tile.RestoredInfo) {
	if i.FromMemory {
		t.restored.of("memory").Inc()
	} else {
		t.restored.of("durable").Inc()
	}
	t.lostTicks.Add(float64(i.LostTicks))
	t.lostTime.Add(max(0, i.LostFor.Seconds()))
}

// hostMetrics are what the hooks of hosts write to.
type hostMetrics struct {
	ended    by[string, prometheus.Counter]
	promoted by[tile.Suspicion, prometheus.Observer]
	waited   prometheus.Observer
}

func newHostMetrics(m *Metrics) *hostMetrics {
	const p = "tilehost"
	return &hostMetrics{
		ended: counters(m, p, "ended_total", "Processors that ended, by why.", "why", "drained", "superseded", "lost",
			"quarantined", "failed"),
		promoted: histograms(m, p, "promotion_seconds",
			"Claims and take-overs, from their turn until the tile served or the attempt failed.", slow, "why",
			tile.Suspicion(0), tile.SilentOwner, tile.OwnerDied, tile.HandedOver, tile.Ordered),
		waited: histogram(m, p, "promotion_wait_seconds", "Waits of claims and take-overs for their turn.", slow),
	}
}

// TileHost attaches metrics to the hooks of a host.
func (m *Metrics) TileHost(h *tilehost.Hooks) {
	t := once(m, "tilehost", newHostMetrics)
	attach(&h.Ended, func(i tilehost.EndInfo) { t.ended.of(ending(i.Err)).Inc() })
	attach(&h.Promoted, func(i tilehost.PromotionInfo) {
		seconds(t.promoted.of(i.Why), i.Took)
		seconds(t.waited, i.Waited)
	})
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
