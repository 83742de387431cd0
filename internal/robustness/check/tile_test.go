package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// TestActionsAreLearned: a watcher may see an entry first, without what it decided; the owner that presented it or
// a watcher that sees it whole says that. What another owner presented there says nothing.
func TestActionsAreLearned(t *testing.T) {
	at, decided := history.Position{Epoch: 1, Seq: 1, Chain: 7}, []history.Action{{ID: "a", Outcome: "applied"}}
	seen := history.Record{Kind: history.Frame, Tile: 1, At: 1, Entry: &history.Entry{Position: at, Payload: "digest"}}
	for name, c := range map[string]struct {
		payload string
		want    []history.Action
	}{"the same entry": {"digest", decided}, "another": {"other", nil}} {
		saw := history.Record{Kind: history.Saw, Tile: 1, At: 2,
			Entry: &history.Entry{Position: at, Payload: c.payload, Actions: decided}}
		judged := NewTile(&history.History{Records: []history.Record{seen, saw}}, 1)
		require.Equal(t, c.want, judged.Entries[at].Actions, name)
		o := history.Operation{Record: history.Record{Kind: history.Commit, Tile: 1,
			Commit: &history.CommitCall{Next: at, Payload: c.payload, Actions: decided}}}
		judged = NewTile(&history.History{Records: []history.Record{seen}, Operations: []history.Operation{o}}, 1)
		require.Equal(t, c.want, judged.Entries[at].Actions, name)
	}
}

// script makes the operations of tile 1, one after the other.
type script struct{ clock int64 }

const id = 1

func (h *script) call(client string, o history.Operation, at history.Position) history.Operation {
	o.Record.Client, o.Tile, o.At, o.Returned = client, id, h.clock+1, h.clock+2
	o.Result = history.Result{Outcome: history.OK, Position: at, Replicas: 1}
	h.clock += 2
	return o
}

// commit is one that every replica confirms; an install if it has no events.
func (h *script) commit(client string, prev, next history.Position, events int) history.Operation {
	return h.call(client, history.Operation{Record: history.Record{Kind: history.Commit, Commit: &history.CommitCall{
		Epoch: next.Epoch, Prev: prev, Next: next, Events: events, Payload: next.String(), Install: events == 0,
		Replicas: -1}}}, next)
}

// rebase installs the one state that there is.
func (h *script) rebase(client string, replaces *history.Position, next history.Position) history.Operation {
	return h.call(client, history.Operation{Record: history.Record{Kind: history.Rebase, Rebase: &history.RebaseCall{
		Epoch: next.Epoch, Next: next, Replaces: replaces, Replicas: -1, State: "state"}}}, next)
}

// TestARebaseGoesOnFromTheJournal: what a claimant restores is its journal's if that has what the stream lost, however
// far claimants that served nothing have moved the stream since; and the stream's if another owner has served without
// it. A journal of which nothing follows its base is that base.
func TestARebaseGoesOnFromTheJournal(t *testing.T) {
	var (
		first   = history.Position{Epoch: 1, Seq: 1, Chain: 1} // all that the failover kept
		lost    = history.Position{Epoch: 1, Seq: 2, Chain: 2} // in the journal
		died    = history.Position{Epoch: 2, Seq: 2, Chain: 3}
		install = history.Position{Epoch: 3, Seq: 3, Chain: 4}
		rebased = history.Position{Epoch: 4, Seq: 4099, Chain: 5}
	)
	var h script
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
		h = script{}
		operations := []history.Operation{h.commit("a", history.Position{}, first, 1), h.commit("a", first, lost, 1),
			h.commit("b", first, died, c.served), h.commit("c", died, install, 0)}
		read := history.Record{Kind: history.Recovered, Client: "c", Tile: id, At: h.clock + 1, Position: c.journal}
		if c.base != "" {
			read = history.Record{Kind: history.Based, Client: "b", Tile: id, At: h.clock + 1,
				Snapshot: &history.SnapshotCall{Position: c.journal, State: c.base}}
		}
		h.clock++
		operations = append(operations, h.rebase("c", nil, rebased))
		final := history.Record{Kind: history.Final, Tile: id, Final: &history.FinalTile{End: rebased}}
		own := history.Record{Kind: history.Based, Client: "c", Tile: id, At: h.clock + 1,
			Snapshot: &history.SnapshotCall{Position: rebased, State: "state"}}
		judged := NewTile(&history.History{Records: []history.Record{read, own, final}, Operations: operations}, id)
		require.Equal(t, c.want, judged.Entries[rebased].Base, name)
		require.Equal(t, c.want == lost, judged.survived(lost), name)
	}
}

// TestARebaseOfOneThatServed: who has said that it serves rebases on what it holds, though no answer came to it since
// its install.
func TestARebaseOfOneThatServed(t *testing.T) {
	first, install := history.Position{Epoch: 1, Seq: 1, Chain: 1}, history.Position{Epoch: 2, Seq: 2, Chain: 2}
	rebased := history.Position{Epoch: 3, Seq: 4098, Chain: 3}
	for _, serves := range []bool{true, false} {
		var h script
		operations := []history.Operation{h.commit("a", history.Position{}, first, 1), h.commit("b", first, install, 0)}
		state, want := tile.Installing, first
		if serves {
			state, want = tile.Serving, install
		}
		h.clock++
		life := history.Record{Kind: history.Life, Client: "b", Tile: id, At: h.clock,
			Life: &history.LifeEvent{State: state.String()}}
		operations = append(operations, h.rebase("b", &first, rebased)) // all copies of the install were lost
		judged := NewTile(&history.History{Records: []history.Record{life}, Operations: operations}, id)
		require.Equal(t, want, judged.Entries[rebased].Base)
	}
}

// TestARebaseThatGoesBack: an owner that has served rebases on what it holds, unless its tick goes back: it has given
// its state up for that of the stores.
func TestARebaseThatGoesBack(t *testing.T) {
	first, lost := history.Position{Epoch: 1, Seq: 1, Chain: 1}, history.Position{Epoch: 1, Seq: 2, Chain: 2}
	above := history.Position{Epoch: 2, Seq: 4098, Chain: 3}
	again := history.Position{Epoch: 3, Seq: 8194, Chain: 4}
	for tick, want := range map[fence.Tick]history.Position{6: lost, 5: first} {
		var h script
		operations := []history.Operation{h.commit("a", history.Position{}, first, 1), h.commit("a", first, lost, 1),
			h.rebase("a", &lost, above), h.rebase("a", &first, again)}
		operations[2].Rebase.Tick, operations[2].Result.Outcome = 6, history.Unconfirmed
		operations[3].Rebase.Tick, operations[3].Rebase.State = tick, "another"
		judged := NewTile(&history.History{Operations: operations}, id)
		require.Equal(t, want, judged.Entries[again].Base)
	}
}

// TestTwoRebasesOfOneState: a claimant that goes on from what it replaces has the state that another claimant rebased
// on, if nothing but installs came between.
func TestTwoRebasesOfOneState(t *testing.T) {
	first, twin := history.Position{Epoch: 1, Seq: 1, Chain: 1}, history.Position{Epoch: 2, Seq: 4097, Chain: 2}
	install, rebased := history.Position{Epoch: 2, Seq: 2, Chain: 3}, history.Position{Epoch: 3, Seq: 8193, Chain: 4}
	for events, want := range map[int]history.Position{0: install, 1: twin} {
		var h script
		operations := []history.Operation{h.commit("a", history.Position{}, first, 1), h.rebase("b", &first, twin),
			h.commit("c", first, install, events), h.rebase("d", &install, rebased)}
		judged := NewTile(&history.History{Operations: operations}, id)
		require.Equal(t, want, judged.Entries[rebased].Base)
	}
}

// TestARebaseOfAnEarlierCheckpoint: an owner took a snapshot, and a later one another of the same state, since nothing
// but installs came between. A claimant with an epoch between theirs has restored the first snapshot: a claimant mints
// above the epoch of the checkpoint that it restores.
func TestARebaseOfAnEarlierCheckpoint(t *testing.T) {
	first, second := history.Position{Epoch: 1, Seq: 1, Chain: 1}, history.Position{Epoch: 2, Seq: 2, Chain: 2}
	third, fourth := history.Position{Epoch: 4, Seq: 3, Chain: 3}, history.Position{Epoch: 5, Seq: 4, Chain: 4}
	rebased := history.Position{Epoch: 3, Seq: 4099, Chain: 5}
	var h script
	saved := func(client string, at history.Position) history.Operation {
		return h.call(client, history.Operation{Record: history.Record{Kind: history.Snapshot,
			Snapshot: &history.SnapshotCall{Position: at, State: "state"}}}, at)
	}
	operations := []history.Operation{h.commit("a", history.Position{}, first, 1), h.commit("b", first, second, 1),
		saved("b", second), h.commit("c", second, third, 0), h.commit("d", third, fourth, 0), saved("d", fourth),
		h.rebase("e", &first, rebased)}
	judged := NewTile(&history.History{Operations: operations}, id)
	require.Equal(t, second, judged.Entries[rebased].Base)
}

// TestARebaseOfACheckpointThatForgot: who restores a checkpoint forgets the outcomes in it that are too old by then, so
// that its state has other bytes. The game's part is as it was. It is that of what the claimant has read, if nothing
// but outcomes came between.
func TestARebaseOfACheckpointThatForgot(t *testing.T) {
	saved, lost := history.Position{Epoch: 1, Seq: 1, Chain: 1}, history.Position{Epoch: 1, Seq: 2, Chain: 2}
	rebased := history.Position{Epoch: 2, Seq: 4097, Chain: 3}
	for name, c := range map[string]struct {
		game   string
		events int // of the batch after the snapshot
		read   history.Position
		want   history.Position
	}{
		"the checkpoint":         {"game", 1, history.Position{}, saved},
		"of another game":        {"another", 1, history.Position{}, history.Position{}},
		"of an unknown game":     {"", 1, history.Position{}, history.Position{}},
		"what came after it":     {"game", 0, lost, lost},
		"not what came after it": {"game", 1, lost, saved},
	} {
		var h script
		operations := []history.Operation{h.commit("a", history.Position{}, saved, 1),
			h.call("a", history.Operation{Record: history.Record{Kind: history.Snapshot,
				Snapshot: &history.SnapshotCall{Position: saved, State: "all", Game: c.game}}}, saved),
			h.commit("a", saved, lost, 1), h.rebase("b", &c.read, rebased)}
		operations[2].Commit.Events, operations[2].Commit.Actions = c.events, []history.Action{{ID: "a"}}
		if operations[3].Rebase.State = "less"; c.game != "" {
			operations[3].Rebase.Game = "game"
		}
		judged := NewTile(&history.History{Operations: operations}, id)
		require.Equal(t, c.want, judged.Entries[rebased].Base, name)
	}
}
