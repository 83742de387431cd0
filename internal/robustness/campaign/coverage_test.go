//go:build unix

package campaign

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// TestRulesThatActedAreCounted, under names that the report lists; those that did not are named as such.
func TestRulesThatActedAreCounted(t *testing.T) {
	own := history.CommitCall{Epoch: 2, Prev: history.Position{Epoch: 2, Seq: 4}, Events: 1, Install: true}
	first := history.CommitCall{Epoch: 2, Prev: history.Position{Epoch: 1, Seq: 4}, Install: true}
	ok := history.Result{Outcome: history.OK}
	op := func(r history.Record, result history.Result) history.Operation {
		return history.Operation{Record: r, Result: result}
	}
	submit := history.Record{Kind: history.Submit, Intent: &history.IntentCall{Action: "x"}}
	published := func(seq fence.Seq) history.Record {
		return history.Record{Kind: history.Published, Tile: 1,
			Entry: &history.Entry{Position: history.Position{Seq: seq}}}
	}
	h := &history.History{
		Operations: []history.Operation{
			op(history.Record{Kind: history.Promote},
				history.Result{Outcome: history.OK, Grant: &history.Grant{Epoch: 4}}),
			op(history.Record{Kind: history.Restore, Row: &history.Grant{Epoch: 3}}, ok),
			op(history.Record{Kind: history.Restore, Row: &history.Grant{Epoch: 3}}, ok),
			op(history.Record{Kind: history.Commit, Commit: &own}, ok),
			op(history.Record{Kind: history.Commit, Commit: &first}, ok),
			op(history.Record{Kind: history.Commit, Commit: &own},
				history.Result{Outcome: history.Refused, Reason: "behind"}),
			op(history.Record{Kind: history.Rebase, Rebase: &history.RebaseCall{}}, ok),
			op(submit, history.Result{Outcome: history.OK, Answer: "applied"}),
			op(submit, history.Result{Outcome: history.OK, Answer: "applied"}),
		},
		Records: []history.Record{published(5), published(4), {Kind: history.Reset},
			{Kind: history.Commit, Commit: &history.CommitCall{Epoch: 2, Next: history.Position{Epoch: 2, Seq: 4}}},
			{Kind: history.Commit, Commit: &history.CommitCall{Epoch: 4, Prev: history.Position{Epoch: 2, Seq: 4}}},
			{Client: "outshone", Kind: history.Commit, Commit: &history.CommitCall{Next: history.Position{Epoch: 4}}},
			{Kind: history.Frame, Entry: &history.Entry{Position: history.Position{Epoch: 6}}},
			{Client: "outshone", Kind: history.Rebase, Rebase: &history.RebaseCall{Epoch: 7}},
			{Kind: history.Life, Life: &history.LifeEvent{Ended: true, Successor: &history.Owner{Epoch: 3}}},
			{Kind: history.Life, Life: &history.LifeEvent{Ended: true, Epoch: 5, Successor: &history.Owner{Epoch: 3}}}},
	}
	acted := coverage{}
	acted.count(h)
	require.Equal(t, coverage{"promoted": 1, "restored": 2, "forgotten": 1, "re-appended": 1, "installed": 1,
		"behind": 1, "rebased": 1, "remembered": 1, "bridge went back": 1, "view reset": 1, "superseded": 2,
		"reclaimed": 1, "outshone": 1, "gave way": 1}, acted)
	names := map[string]bool{}
	for _, r := range rules {
		names[r.name] = true
	}
	for name := range acted {
		require.True(t, names[name], name)
	}
	s := &Summary{Results: []Result{{Fault: Faults()[0], Acted: acted}}}
	require.Contains(t, s.Never(), "sealed")
	require.NotContains(t, s.Never(), "promoted")
	require.Len(t, s.Never(), len(rules)-len(acted))
	report := s.Report()
	require.Contains(t, report, "| re-appended | 1 | 1 |")
	require.Contains(t, report, "| sealed | **never** | 0 |")
}
