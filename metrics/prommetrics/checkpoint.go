package prommetrics

import (
	"errors"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
)

// checkpoint attaches metrics to the hooks of a checkpointer.
func (m *Metrics) checkpoint(h *checkpoint.Hooks) {
	c := once(m, "checkpoint", checkpointHooks)
	hook.Attach(&h.Durable, c.Durable)
	hook.Attach(&h.Skipped, c.Skipped)
	hook.Attach(&h.Failed, c.Failed)
	hook.Attach(&h.Drained, c.Drained)
}

func checkpointHooks(m *Metrics) *checkpoint.Hooks {
	write := histogram(m, "checkpoint_write_seconds", "Writes of a snapshot to the durable store.", quick)
	lag := histogram(m, "checkpoint_age_seconds",
		"How long the durable store had lacked a tile's latest snapshot when it got it.", slow)
	size := histogram(m, "checkpoint_snapshot_bytes", "Size of the snapshots.", sizes)
	skipped := counters(m, "checkpoint_skips_total", "Snapshots that must not be written, by why.", "reason",
		"corrupt", "floor", "older")
	failed := counters(m, "checkpoint_failures_total", "Attempts that failed, by what they were doing.", "stage",
		checkpoint.Reading, checkpoint.Writing, checkpoint.Marking)
	drain := histogram(m, "checkpoint_drain_seconds", "Last passes, from the begin of the stop.", slow)
	behind := gauge(m, "checkpoint_drained_behind", "Tiles that the last pass has left behind, when it has ended.")
	return &checkpoint.Hooks{
		Durable: func(i checkpoint.DurableInfo) {
			seconds(write, i.Took)
			seconds(lag, i.Lag)
			size.Observe(float64(i.Bytes))
		},
		Skipped: func(i checkpoint.SkippedInfo) { skipped.of(skip(i.Err)).Inc() },
		Failed:  func(i checkpoint.FailedInfo) { failed.of(i.Stage).Inc() },
		Drained: func(i checkpoint.DrainedInfo) {
			seconds(drain, i.Took)
			behind.Set(float64(i.Behind))
		},
	}
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
