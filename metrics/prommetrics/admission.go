package prommetrics

import (
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/stream"
)

// admission attaches metrics to the hooks of a gateway.
func (m *Metrics) admission(h *admission.Hooks) {
	a := once(m, "admission", admissionHooks)
	hook.Attach(&h.Admitted, a.Admitted)
	hook.Attach(&h.Settled, a.Settled)
	hook.Attach(&h.Done, a.Done)
	hook.Attach(&h.Swept, a.Swept)
}

func admissionHooks(m *Metrics) *admission.Hooks {
	intent := histograms(m, "admission_intent_seconds", "Intents from their coming to their outcome or error.", quick,
		"kind", admission.Move, admission.Act)
	replayed := counter(m, "admission_replayed_total", "Intents whose outcome the ledger had already.")
	sweep := histogram(m, "admission_sweep_seconds", "Sweeps over pending actions.", slow)
	swept := counters(m, "admission_swept_total",
		"Pending actions that sweeps picked up; those of them now terminal, of "+
			"these those settled by evidence and those given back; those too old to be sent, without evidence; and "+
			"those left to the next sweep.",
		"what", "found", "resolved", "evidence", "refunded", "stuck", "left")
	sweepsFailed := counter(m, "admission_sweep_failures_total", "Sweeps whose listing failed.")
	return &admission.Hooks{
		Admitted: admitted(m),
		Settled:  settled(m),
		Done: func(i admission.DoneInfo) {
			seconds(intent.of(i.Kind), i.Took)
			if i.Replayed {
				replayed.Inc()
			}
		},
		Swept: func(i admission.SweepInfo) {
			seconds(sweep, i.Took)
			addSome(swept.of("found"), i.Found)
			addSome(swept.of("resolved"), i.Resolved)
			addSome(swept.of("evidence"), i.Evidence)
			addSome(swept.of("refunded"), i.Refunded)
			addSome(swept.of("stuck"), i.Stuck)
			addSome(swept.of("left"), i.Left)
			if i.Err != nil {
				sweepsFailed.Inc()
			}
		},
	}
}

func admitted(m *Metrics) func(admission.AdmitInfo) {
	took := histogram(m, "admission_admit_seconds", "Admissions of actions by the ledger.", quick)
	answers := counters(m, "admission_admits_total", "Answers of the ledger to actions.", "answer", "admitted",
		"duplicate", "balance", "cooldown", "error")
	return func(i admission.AdmitInfo) {
		seconds(took, i.Took)
		answer := "admitted"
		switch {
		case i.Err != nil:
			answer = "error"
		case i.Duplicate:
			answer = "duplicate"
		case i.Reason != 0:
			answer = i.Reason.String()
		}
		answers.of(answer).Inc()
	}
}

func settled(m *Metrics) func(admission.SettleInfo) {
	took := histogram(m, "admission_settle_seconds", "Settlements of actions in the ledger.", quick)
	outcomes := counters(m, "admission_settles_total", "Actions settled in the ledger, by their outcome.", "outcome",
		stream.Applied, stream.Fizzled, stream.Rejected, stream.Redirected)
	failed := counter(m, "admission_settle_failures_total", "Settlements that got no answer of the ledger.")
	refunds := counter(m, "admission_refunds_total", "Actions whose cost was refunded.")
	return func(i admission.SettleInfo) {
		seconds(took, i.Took)
		if i.Err != nil {
			failed.Inc()
			return
		}
		outcomes.of(i.Outcome).Inc()
		if i.Refunded {
			refunds.Inc()
		}
	}
}

// clients attaches metrics to the hooks of a gateway's WebSockets.
func (m *Metrics) clients(h *gatewayws.Hooks) {
	c := once(m, "gatewayws", clientHooks)
	hook.Attach(&h.Opened, c.Opened)
	hook.Attach(&h.Closed, c.Closed)
	hook.Attach(&h.Answered, c.Answered)
}

func clientHooks(m *Metrics) *gatewayws.Hooks {
	clients := gauge(m, "gatewayws_clients", "Connections now.")
	open := histogram(m, "gatewayws_connection_seconds", "How long connections were open, when they end.", long)
	took := histogram(m, "gatewayws_answer_seconds", "From a client's frame to its answer.", quick)
	answers := counters(m, "gatewayws_answers_total",
		"Answers to frames: an outcome, or the code of an error.", "answer",
		"applied", "fizzled", "rejected", "redirected", string(gatewayws.CodeMalformed),
		string(gatewayws.CodeInvalid), string(gatewayws.CodeRefused), string(gatewayws.CodeReused),
		string(gatewayws.CodeExpired), string(gatewayws.CodePending), string(gatewayws.CodeLimited),
		string(gatewayws.CodeBusy), string(gatewayws.CodeOverloaded), string(gatewayws.CodeUnavailable),
		string(gatewayws.CodeDraining), string(gatewayws.CodeInternal))
	return &gatewayws.Hooks{
		Opened: func(gatewayws.ConnInfo) { clients.Inc() },
		Closed: func(i gatewayws.ConnInfo) {
			clients.Dec()
			seconds(open, i.Open)
		},
		Answered: func(i gatewayws.AnswerInfo) {
			seconds(took, i.Took)
			if i.Code != "" {
				answers.of(string(i.Code)).Inc()
			} else {
				answers.of(i.Outcome.String()).Inc()
			}
		},
	}
}

// match attaches metrics to the hooks of a worker or supervisor of matchmaking. Read serves the depth of a queue.
func (m *Metrics) match(h *match.Hooks) {
	t := once(m, "match", matchHooks)
	hook.Attach(&h.Looked, t.Looked)
	hook.Attach(&h.Finished, t.Finished)
	hook.Attach(&h.Reclaimed, t.Reclaimed)
	hook.Attach(&h.Failed, t.Failed)
	hook.Attach(&h.Stale, t.Stale)
}

func matchHooks(m *Metrics) *match.Hooks {
	look := histogram(m, "match_look_seconds", "Looks of workers, from the claim of tickets to their release.", quick)
	reclaim := histogram(m, "match_reclaim_seconds", "Looks of supervisors at a shard.", quick)
	tickets := counters(m, "match_tickets_total", "What became of tickets.", "what", "claimed", "released", "returned",
		"timed_out", "lapsed")
	matches := counters(m, "match_matches_total", "Matches, by how far they came.", "what", "recorded", "assigned",
		"dissolved", "pending")
	failures := counters(m, "match_failures_total", "Calls of the store or the allocator that failed.", "op", "claim",
		"record", "release", "heartbeat", "allocate", "publish", "dissolve", "reclaim", "subscribe", "leave",
		"requeue", "release seats", "lapsed seats", "settle lapsed seats")
	stale := counter(m, "match_stale_workers_total", "Workers that were presumed dead, and go on under a new epoch.")
	return &match.Hooks{
		Looked: func(i match.LookInfo) {
			seconds(look, i.Took)
			addSome(tickets.of("claimed"), i.Claimed)
			addSome(tickets.of("released"), i.Released)
			addSome(matches.of("recorded"), i.Matches)
		},
		Finished: func(i match.FinishInfo) {
			if i.Err != nil {
				matches.of("dissolved").Inc()
			} else {
				matches.of("assigned").Inc()
			}
		},
		Reclaimed: func(i match.ReclaimInfo) {
			seconds(reclaim, i.Took)
			addSome(tickets.of("returned"), i.Returned)
			addSome(tickets.of("timed_out"), i.TimedOut)
			addSome(tickets.of("lapsed"), i.Lapsed)
			addSome(matches.of("pending"), i.Pending)
		},
		Failed: func(i match.FailInfo) { failures.of(i.Op).Inc() },
		Stale:  func(string) { stale.Inc() },
	}
}
