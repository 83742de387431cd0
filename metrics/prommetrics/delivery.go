package prommetrics

import (
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

// bridge attaches metrics to the hooks of a bridge.
func (m *Metrics) bridge(h *bridge.Hooks) {
	b := once(m, "bridge", bridgeHooks)
	hook.Attach(&h.Pass, b.Pass)
	hook.Attach(&h.Published, b.Published)
	hook.Attach(&h.Failed, b.Failed)
}

func bridgeHooks(m *Metrics) *bridge.Hooks {
	read := histogram(m, "bridge_read_seconds", "What of a pass reading took.", quick)
	publish := histogram(m, "bridge_publish_seconds", "What of a pass publishing took.", quick)
	lag := histogram(m, "bridge_delivery_seconds",
		"From a batch's commit, by the owner's clock, to the end of its publish, by this process's.", quick)
	failures := counters(m, "bridge_failures_total", "Calls that failed, and are made again.", "op", bridge.OpResume,
		bridge.OpRead, bridge.OpPublish, bridge.OpMark, bridge.OpDeadLetter)
	return &bridge.Hooks{
		Pass: func(i bridge.PassInfo) {
			seconds(read, i.Read)
			if i.Sent+i.Unsent > 0 {
				seconds(publish, i.Publish)
			}
		},
		Published: func(i bridge.PublishedInfo) { seconds(lag, i.Lag) },
		Failed:    func(i bridge.FailureInfo) { failures.of(i.Op).Inc() },
	}
}

// relay attaches metrics to the hooks of a relay.
func (m *Metrics) relay(h *relay.Hooks) {
	r := once(m, "relay", relayHooks)
	hook.Attach(&h.ClientClosed, r.ClientClosed)
	hook.Attach(&h.Repaired, r.Repaired)
}

func relayHooks(m *Metrics) *relay.Hooks {
	kinds := []string{"load", "tail", "full", "snapshot"}
	open := histogram(m, "relay_connection_seconds", "How long connections were open, when they end.", long)
	rate := histogram(m, "relay_connection_bytes_per_second",
		"What a connection was sent, over its whole life, when it ends.",
		[]float64{10, 50, 100, 200, 400, 600, 800, 1200, 2400, 10000, 100000})
	closes := counters(m, "relay_closes_total", "Connections that ended, by the status that the relay gave; 0: none.",
		"code", 0, int(relaypb.CloseGoingAway), int(relaypb.ClosePolicy), int(relaypb.CloseTooSlow),
		int(relaypb.CloseIdle), 1000, 1009, 1011)
	repairs := histograms(m, "relay_repair_seconds", "Cold reads of the store that brought a tile up to date.", quick,
		"kind", kinds...)
	failed := counters(m, "relay_repair_failures_total", "Cold reads that failed.", "kind", kinds...)
	return &relay.Hooks{
		ClientClosed: func(i relay.ClientClosedInfo) {
			seconds(open, i.Open)
			if i.Open > 0 {
				rate.Observe(float64(i.Bytes) / i.Open.Seconds())
			}
			closes.of(i.Code).Inc()
		},
		Repaired: func(i relay.RepairInfo) {
			if i.Err != nil {
				failed.of(i.Kind).Inc()
				return
			}
			seconds(repairs.of(i.Kind), i.Took)
		},
	}
}

// views attaches metrics to the hooks of a cache of views.
func (m *Metrics) views(h *viewcache.Hooks) {
	hook.Attach(&h.Rebuilt, once(m, "viewcache", viewHooks).Rebuilt)
}

func viewHooks(m *Metrics) *viewcache.Hooks {
	took := histograms(m, "viewcache_rebuild_seconds",
		"Reads of the log for all relays, until they were stored.", quick, "whole", true, false)
	failed := counter(m, "viewcache_rebuild_failures_total", "Reads of the log for all relays that failed.")
	return &viewcache.Hooks{Rebuilt: func(i viewcache.RebuildInfo) {
		if i.Err != nil {
			failed.Inc()
			return
		}
		seconds(took.of(i.Whole), i.Took)
	}}
}

// tiered attaches metrics to the hooks of a fan-out of two tiers.
func (m *Metrics) tiered(h *tiered.Hooks) {
	hook.Attach(&h.Moved, once(m, "tiered", tieredHooks).Moved)
}

func tieredHooks(m *Metrics) *tiered.Hooks {
	moves := counters(m, "tiered_moves_to_total",
		"Tiles that changed their tiers, by those that carry them now.", "state",
		tiered.Ordinary, tiered.Both, tiered.Broker)
	faults := counter(m, "tiered_faults_total", "Tiles that fell back from the broker because of a fault.")
	return &tiered.Hooks{Moved: func(i tiered.MoveInfo) {
		moves.of(i.State).Inc()
		if i.Fault {
			faults.Inc()
		}
	}}
}
