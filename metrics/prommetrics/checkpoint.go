package prommetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// checkpointMetrics are what the hooks of checkpointers write to.
type checkpointMetrics struct {
	write, lag, size prometheus.Observer
	skipped          by[string, prometheus.Counter]
	failed           by[checkpoint.Stage, prometheus.Counter]
	drain            prometheus.Observer
	drainedBehind    prometheus.Gauge
}

func newCheckpointMetrics(m *Metrics) *checkpointMetrics {
	const p = "checkpoint"
	return &checkpointMetrics{
		write: histogram(m, p, "write_seconds", "Writes of a snapshot to the durable store.", quick),
		lag: histogram(m, p, "age_seconds",
			"How long the durable store had lacked a tile's latest snapshot when it got it.", slow),
		size: histogram(m, p, "snapshot_bytes", "Size of the snapshots.", sizes),
		skipped: counters(m, p, "skips_total",
			"Snapshots that must not be written, by why.", "reason", "corrupt", "floor",
			"older"),
		failed: counters(m, p, "failures_total", "Attempts that failed, by what they were doing.", "stage",
			checkpoint.Reading, checkpoint.Writing, checkpoint.Marking),
		drain:         histogram(m, p, "drain_seconds", "Last passes, from the begin of the stop.", slow),
		drainedBehind: gauge(m, p, "drained_behind", "Tiles that the last pass has left behind, when it has ended."),
	}
}

// CheckpointHooks attaches metrics to the hooks of a checkpointer.
func (m *Metrics) CheckpointHooks(h *checkpoint.Hooks) {
	c := once(m, "checkpoint", newCheckpointMetrics)
	attach(&h.Durable, func(i checkpoint.DurableInfo) {
		seconds(c.write, i.Took)
		seconds(c.lag, i.Lag)
		c.size.Observe(float64(i.Bytes))
	})
	attach(&h.Skipped, func(i checkpoint.SkippedInfo) { c.skipped.of(skip(i.Err)).Inc() })
	attach(&h.Failed, func(i checkpoint.FailedInfo) { c.failed.of(i.Stage).Inc() })
	attach(&h.Drained, func(i checkpoint.DrainedInfo) {
		seconds(c.drain, i.Took)
		c.drainedBehind.Set(float64(i.Behind))
	})
}

func skip(err error) string {
	if errors.Is(err, fence.ErrCorrupt) {
		return "corrupt"
	}
	if _, ok := errors.AsType[*checkpoint.FloorError](err); ok {
		return "floor"
	}
	if _, ok := errors.AsType[*checkpoint.OlderError](err); ok {
		return "older"
	}
	return "other"
}
