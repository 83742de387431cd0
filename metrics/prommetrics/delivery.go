package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relaypb"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

// bridgeMetrics are what the hooks of bridges write to.
type bridgeMetrics struct {
	read, publish, lag prometheus.Observer
	failures           by[bridge.Op, prometheus.Counter]
}

func newBridgeMetrics(m *Metrics) *bridgeMetrics {
	const p = "bridge"
	return &bridgeMetrics{
		read:    histogram(m, p, "read_seconds", "What of a pass reading took.", quick),
		publish: histogram(m, p, "publish_seconds", "What of a pass publishing took.", quick),
		lag: histogram(m, p, "delivery_seconds",
			"From a batch's commit, by the owner's clock, to the end of its publish, by this process's.", quick),
		failures: counters(m, p, "failures_total", "Calls that failed, and are made again.", "op", bridge.OpResume,
			bridge.OpRead, bridge.OpPublish, bridge.OpMark, bridge.OpDeadLetter),
	}
}

// BridgeHooks attaches metrics to the hooks of a bridge.
func (m *Metrics) BridgeHooks(h *bridge.Hooks) {
	b := once(m, "bridge", newBridgeMetrics)
	attach(&h.Pass, func(i bridge.PassInfo) {
		seconds(b.read, i.Read)
		if i.Sent+i.Unsent > 0 {
			seconds(b.publish, i.Publish)
		}
	})
	attach(&h.Published, func(i bridge.PublishedInfo) { seconds(b.lag, i.Lag) })
	attach(&h.Failed, func(i bridge.FailureInfo) { b.failures.of(i.Op).Inc() })
}

// relayMetrics are what the hooks of relays write to.
type relayMetrics struct {
	open, rate, queued prometheus.Observer
	closes             by[int, prometheus.Counter]
	gaps               by[string, prometheus.Counter]
	repairs            by[string, prometheus.Observer]
	failed             by[string, prometheus.Counter]
}

func newRelayMetrics(m *Metrics) *relayMetrics {
	const p = "relay"
	kinds := []string{"load", "tail", "full", "snapshot"}
	return &relayMetrics{
		open: histogram(m, p, "connection_seconds", "How long connections were open, when they end.", long),
		rate: histogram(m, p, "connection_bytes_per_second",
			"What a connection was sent, over its whole life, when it ends.",
			[]float64{10, 50, 100, 200, 400, 600, 800, 1200, 2400, 10000, 100000}),
		queued: histogram(m, p, "slow_client_bytes",
			"What waited for a client when a tile's frames were dropped.", sizes),
		closes: counters(m, p, "closes_total", "Connections that ended, by the status that the relay gave; 0: none.",
			"code", 0, int(relaypb.CloseGoingAway), int(relaypb.ClosePolicy), int(relaypb.CloseTooSlow),
			int(relaypb.CloseIdle), 1000, 1009, 1011),
		gaps: counters(m, p, "gaps_found_total",
			"Places where a history did not continue, by how they were found.", "by",
			"frame", "rebase", "check", "mark"),
		repairs: histograms(m, p, "repair_seconds", "Cold reads of the store that brought a tile up to date.", quick,
			"kind", kinds...),
		failed: counters(m, p, "repair_failures_total", "Cold reads that failed.", "kind", kinds...),
	}
}

// RelayHooks attaches metrics to the hooks of a relay.
func (m *Metrics) RelayHooks(h *relay.Hooks) {
	r := once(m, "relay", newRelayMetrics)
	attach(&h.ClientClosed, func(i relay.ClientClosedInfo) {
		seconds(r.open, i.Open)
		if i.Open > 0 {
			r.rate.Observe(float64(i.Bytes) / i.Open.Seconds())
		}
		r.closes.of(i.Code).Inc()
	})
	attach(&h.Gap, func(i relay.GapInfo) { r.gaps.of(i.By).Inc() })
	attach(&h.Repaired, func(i relay.RepairInfo) {
		if i.Err != nil {
			r.failed.of(i.Kind).Inc()
			return
		}
		seconds(r.repairs.of(i.Kind), i.Took)
	})
	attach(&h.SlowClient, func(i relay.SlowClientInfo) { r.queued.Observe(float64(i.Queued)) })
}

// tieredMetrics are what the hooks of a fan-out of two tiers write to.
type tieredMetrics struct {
	moves  by[tiered.State, prometheus.Counter]
	faults prometheus.Counter
}

func newTieredMetrics(m *Metrics) *tieredMetrics {
	const p = "tiered"
	return &tieredMetrics{
		moves: counters(m, p, "moves_to_total",
			"Tiles that changed their tiers, by those that carry them now.", "state",
			tiered.Ordinary, tiered.Both, tiered.Broker),
		faults: counter(m, p, "faults_total", "Tiles that fell back from the broker because of a fault."),
	}
}

// Tiered attaches metrics to the hooks of a fan-out of two tiers.
func (m *Metrics) Tiered(h *tiered.Hooks) {
	t := once(m, "tiered", newTieredMetrics)
	attach(&h.Moved, func(i tiered.MoveInfo) {
		t.moves.of(i.State).Inc()
		if i.Fault {
			t.faults.Inc()
		}
	})
}
