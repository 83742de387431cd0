package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/stream"
)

// admissionMetrics are what the hooks of gateways write to.
type admissionMetrics struct {
	admit, settle prometheus.Observer
	admits        by[string, prometheus.Counter]
	settles       by[stream.Outcome, prometheus.Counter]
	settlesFailed prometheus.Counter
	refunds       prometheus.Counter
	intent        by[admission.Kind, prometheus.Observer]
	replayed      prometheus.Counter
	shapedWait    by[admission.Scope, prometheus.Observer]
	sweep         prometheus.Observer
	swept         by[string, prometheus.Counter]
	sweepsFailed  prometheus.Counter
}

func newAdmissionMetrics(m *Metrics) *admissionMetrics {
	const p = "admission"
	return &admissionMetrics{
		admit: histogram(m, p, "admit_seconds", "Admissions of actions by the ledger.", quick),
		admits: counters(m, p, "admits_total", "Answers of the ledger to actions.", "answer", "admitted", "duplicate",
			"balance", "cooldown", "error"),
		settle: histogram(m, p, "settle_seconds", "Settlements of actions in the ledger.", quick),
		settles: counters(m, p, "settles_total", "Actions settled in the ledger, by their outcome.", "outcome",
			stream.Applied, stream.Fizzled, stream.Rejected, stream.Redirected),
		settlesFailed: counter(m, p, "settle_failures_total", "Settlements that got no answer of the ledger."),
		refunds:       counter(m, p, "refunds_total", "Actions whose cost was refunded."),
		intent: histograms(m, p, "intent_seconds",
			"Intents from their coming to their outcome or error.", quick, "kind",
			admission.Move, admission.Act),
		replayed: counter(m, p, "replayed_total", "Intents whose outcome the ledger had already."),
		shapedWait: histograms(m, p, "shaped_wait_seconds",
			"Waits of intents above a rate that were not refused.", quick,
			"scope", admission.ScopeActor, admission.ScopeTile, admission.ScopeTakeover),
		sweep: histogram(m, p, "sweep_seconds", "Sweeps over pending actions.", slow),
		swept: counters(m, p, "swept_total", "Pending actions that sweeps picked up, and those of them now terminal.",
			"what", "found", "resolved"),
		sweepsFailed: counter(m, p, "sweep_failures_total", "Sweeps whose listing failed."),
	}
}

// Admission attaches metrics to the hooks of a gateway.
func (m *Metrics) Admission(h *admission.Hooks) {
	a := once(m, "admission", newAdmissionMetrics)
	attach(&h.Admitted, a.admitted)
	attach(&h.Settled, a.settled)
	attach(&h.Done, func(i admission.DoneInfo) {
		seconds(a.intent.of(i.Kind), i.Took)
		if i.Replayed {
			a.replayed.Inc()
		}
	})
	attach(&h.Shaped, func(i admission.ShapeInfo) {
		if !i.Refused {
			seconds(a.shapedWait.of(i.Scope), i.Wait)
		}
	})
	attach(&h.Swept, func(i admission.SweepInfo) {
		seconds(a.sweep, i.Took)
		addSome(a.swept.of("found"), i.Found)
		addSome(a.swept.of("resolved"), i.Resolved)
		if i.Err != nil {
			a.sweepsFailed.Inc()
		}
	})
}

func (a *admissionMetrics) admitted(i admission.AdmitInfo) {
	seconds(a.admit, i.Took)
	answer := "admitted"
	switch {
	case i.Err != nil:
		answer = "error"
	case i.Duplicate:
		answer = "duplicate"
	case i.Reason != 0:
		answer = i.Reason.String()
	}
	a.admits.of(answer).Inc()
}

func (a *admissionMetrics) settled(i admission.SettleInfo) {
	seconds(a.settle, i.Took)
	if i.Err != nil {
		a.settlesFailed.Inc()
		return
	}
	a.settles.of(i.Outcome).Inc()
	if i.Refunded {
		a.refunds.Inc()
	}
}

// clientMetrics are what the hooks of a gateway's WebSockets write to.
type clientMetrics struct {
	clients prometheus.Gauge
	open    prometheus.Observer
	answer  prometheus.Observer
	answers by[string, prometheus.Counter]
}

func newClientMetrics(m *Metrics) *clientMetrics {
	const p = "gatewayws"
	return &clientMetrics{
		clients: gauge(m, p, "clients", "Connections now."),
		open:    histogram(m, p, "connection_seconds", "How long connections were open, when they end.", long),
		answer:  histogram(m, p, "answer_seconds", "From a client's frame to its answer.", quick),
		answers: counters(m, p, "answers_total", "Answers to frames: an outcome, or the code of an error.", "answer",
			"applied", "fizzled", "rejected", "redirected", string(gatewayws.CodeMalformed),
			string(gatewayws.CodeInvalid), string(gatewayws.CodeRefused), string(gatewayws.CodeReused),
			string(gatewayws.CodeExpired), string(gatewayws.CodePending), string(gatewayws.CodeLimited),
			string(gatewayws.CodeBusy), string(gatewayws.CodeOverloaded), string(gatewayws.CodeUnavailable),
			string(gatewayws.CodeDraining), string(gatewayws.CodeInternal)),
	}
}

// GatewayClients attaches metrics to the hooks of a gateway's WebSockets.
func (m *Metrics) GatewayClients(h *gatewayws.Hooks) {
	c := once(m, "gatewayws", newClientMetrics)
	attach(&h.Opened, func(gatewayws.ConnInfo) { c.clients.Inc() })
	attach(&h.Closed, func(i gatewayws.ConnInfo) {
		c.clients.Dec()
		seconds(c.open, i.Open)
	})
	attach(&h.Answered, func(i gatewayws.AnswerInfo) {
		seconds(c.answer, i.Took)
		if i.Code != "" {
			c.answers.of(string(i.Code)).Inc()
		} else {
			c.answers.of(i.Outcome.String()).Inc()
		}
	})
}

// matchMetrics are what the hooks of matchmaking write to.
type matchMetrics struct {
	look, reclaim     prometheus.Observer
	tickets           by[string, prometheus.Counter]
	matches, failures by[string, prometheus.Counter]
	stale             prometheus.Counter
}

func newMatchMetrics(m *Metrics) *matchMetrics {
	const p = "match"
	return &matchMetrics{
		look: histogram(m, p, "look_seconds",
			"Looks of workers, from the claim of tickets to their release.", quick),
		reclaim: histogram(m, p, "reclaim_seconds", "Looks of supervisors at a shard.", quick),
		tickets: counters(m, p, "tickets_total", "What became of tickets.", "what", "claimed", "released", "returned",
			"timed_out", "lapsed"),
		matches: counters(m, p, "matches_total", "Matches, by how far they came.", "what", "recorded", "assigned",
			"dissolved", "pending"),
		failures: counters(m, p, "failures_total", "Calls of the store or the allocator that failed.", "op", "claim",
			"record", "release", "heartbeat", "allocate", "publish", "dissolve", "reclaim", "subscribe", "leave",
			"requeue", "release seats", "lapsed seats", "settle lapsed seats"),
		stale: counter(m, p, "stale_workers_total", "Workers that were presumed dead, and go on under a new epoch."),
	}
}

// Match attaches metrics to the hooks of a worker or supervisor of matchmaking. Read serves the depth of a queue.
func (m *Metrics) Match(h *match.Hooks) {
	t := once(m, "match", newMatchMetrics)
	attach(&h.Looked, func(i match.LookInfo) {
		seconds(t.look, i.Took)
		addSome(t.tickets.of("claimed"), i.Claimed)
		addSome(t.tickets.of("released"), i.Released)
		addSome(t.matches.of("recorded"), i.Matches)
	})
	attach(&h.Finished, func(i match.FinishInfo) {
		if i.Err != nil {
			t.matches.of("dissolved").Inc()
		} else {
			t.matches.of("assigned").Inc()
		}
	})
	attach(&h.Reclaimed, func(i match.ReclaimInfo) {
		seconds(t.reclaim, i.Took)
		addSome(t.tickets.of("returned"), i.Returned)
		addSome(t.tickets.of("timed_out"), i.TimedOut)
		addSome(t.tickets.of("lapsed"), i.Lapsed)
		addSome(t.matches.of("pending"), i.Pending)
	})
	attach(&h.Failed, func(i match.FailInfo) { t.failures.of(i.Op).Inc() })
	attach(&h.Stale, func(match.StaleError) { t.stale.Inc() })
}
