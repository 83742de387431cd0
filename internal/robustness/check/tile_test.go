package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// TestActionsAreLearned: a watcher may see an entry first, without what it decided; whoever presented it or sees it
// whole says that. What somebody else presented there says nothing.
func TestActionsAreLearned(t *testing.T) {
	at, decided := history.Position{Epoch: 1, Seq: 1, Chain: 7}, []history.Action{{ID: "a", Outcome: "applied"}}
	seen := history.Record{Kind: history.Frame, Tile: 1, At: 1, Entry: &history.Entry{Position: at, Payload: "digest"}}
	for name, c := range map[string]struct {
		payload string
		want    []history.Action
	}{"the same entry": {"digest", decided}, "another": {"other", nil}} {
		saw := history.Record{Kind: history.Saw, Tile: 1, At: 2,
			Entry: &history.Entry{Position: at, Payload: c.payload, Actions: decided}}
		tile := NewTile(&history.History{Records: []history.Record{seen, saw}}, 1)
		require.Equal(t, c.want, tile.Entries[at].Actions, name)
		o := history.Operation{Record: history.Record{Kind: history.Commit, Tile: 1,
			Commit: &history.CommitCall{Next: at, Payload: c.payload, Actions: decided}}}
		tile = NewTile(&history.History{Records: []history.Record{seen}, Operations: []history.Operation{o}}, 1)
		require.Equal(t, c.want, tile.Entries[at].Actions, name)
	}
}

// TestARebaseGoesOnFromTheJournal: what a claimant restores is its journal's if that has what the stream lost, however
// far claimants that served nothing have moved the stream since; and the stream's if another owner has served without
// it. A journal of which nothing follows its base is that base.
func TestARebaseGoesOnFromTheJournal(t *testing.T) {
	const id = 1
	var (
		first   = history.Position{Epoch: 1, Seq: 1, Chain: 1} // all that the failover kept
		lost    = history.Position{Epoch: 1, Seq: 2, Chain: 2} // in the journal
		died    = history.Position{Epoch: 2, Seq: 2, Chain: 3}
		install = history.Position{Epoch: 3, Seq: 3, Chain: 4}
		rebased = history.Position{Epoch: 4, Seq: 4099, Chain: 5}
	)
	var clock int64
	call := func(client string, o history.Operation, at history.Position) history.Operation {
		o.Record.Client, o.Tile, o.At, o.Returned = client, id, clock+1, clock+2
		o.Result = history.Result{Outcome: history.OK, Position: at, Replicas: 1}
		clock += 2
		return o
	}
	commit := func(client string, prev, next history.Position, events int) history.Operation {
		return call(client, history.Operation{Record: history.Record{Kind: history.Commit, Commit: &history.CommitCall{
			Epoch: next.Epoch, Prev: prev, Next: next, Events: events, Payload: next.String(), Install: events == 0,
			Replicas: -1}}}, next)
	}
	for name, c := range map[string]struct {
		served  int // events of the claimant between
		journal history.Position
		base    string // of the journal, if it ends there
		want    history.Position
	}{
		"claimants served nothing":         {0, lost, "", lost},
		"another served without the entry": {1, lost, "", install},
		"the stream has the entry":         {0, first, "", install},
		"the journal's base":               {0, lost, "state", lost},
		"a base of other bytes":            {0, lost, "another", install},
	} {
		clock = 0
		operations := []history.Operation{commit("a", history.Position{}, first, 1), commit("a", first, lost, 1),
			commit("b", first, died, c.served), commit("c", died, install, 0)}
		read := history.Record{Kind: history.Recovered, Client: "c", Tile: id, At: clock + 1, Position: c.journal}
		if c.base != "" {
			read = history.Record{Kind: history.Based, Client: "b", Tile: id, At: clock + 1,
				Snapshot: &history.SnapshotCall{Position: c.journal, State: c.base}}
		}
		clock++
		operations = append(operations, call("c", history.Operation{Record: history.Record{Kind: history.Rebase,
			Rebase: &history.RebaseCall{Epoch: 4, Next: rebased, Replicas: -1, State: "state"}}}, rebased))
		final := history.Record{Kind: history.Final, Tile: id, Final: &history.FinalTile{End: rebased}}
		own := history.Record{Kind: history.Based, Client: "c", Tile: id, At: clock + 1,
			Snapshot: &history.SnapshotCall{Position: rebased, State: "state"}}
		tile := NewTile(&history.History{Records: []history.Record{read, own, final}, Operations: operations}, id)
		require.Equal(t, c.want, tile.Entries[rebased].Base, name)
		require.Equal(t, c.want == lost, tile.survived(lost), name)
	}
}
