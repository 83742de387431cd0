package check

import (
	"github.com/anishathalye/porcupine"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// CommitsLinearizable means: the writes that survived have an order that agrees with time, with the answers and
// with memfence.State. While only one copy of the store ever answered, that is asked of every write and
// every answer, refusals and refreshes included, and an owner hash may expire at any moment.
//
// Once a failover was possible, a store may have said things that were undone. Then only writes of the
// lineage are asked: a write that was answered is in the history before any write that began after the
// answer. ConfirmedKept, OwnerKeeps and AnswersFollowTable check what else was answered. A master
// that was paused and wakes may, truthfully by what it knows, append, refresh and refuse; nothing it says is
// confirmed, and nothing it appends is in the lineage unless the true master took it too.
//
// It is broken when two copies answer at once and both are believed, and when a write is acknowledged before
// it is made.
func CommitsLinearizable(t *Tile) {
	model, operations := t.lineageModel(), t.lineageOperations()
	if !t.failover(0, history.Never) {
		model, operations = t.storeModel(), t.storeOperations()
	}
	t.linearize(model, operations, linearizeTimeout, "writes have no order that explains their answers")
}

// lineageModel counts the entries of the lineage that are in the history so far. A write of the next one
// appends it; a write of an earlier one is a retry, or re-appends what a failover lost.
func (t *Tile) lineageModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			n, i := state.(int), t.Survives[written(input.(*history.Operation))]
			return i <= n, max(n, i+1)
		},
	}
}

// lineageOperations are the writes of the lineage that were answered, and those that were not.
func (t *Tile) lineageOperations() []porcupine.Operation {
	present := map[history.Position]bool{}
	operations := t.calls(func(o *history.Operation) bool {
		if !appends(o) || !o.Open() && !o.Applied() {
			return false
		}
		_, survives := t.Survives[written(o)]
		present[written(o)] = present[written(o)] || survives
		return survives
	})
	// An entry that no client presented (NoFork reports it) may have come at any time.
	for _, e := range t.Lineage {
		if !present[e.Position] {
			o := &history.Operation{Record: history.Record{Kind: history.Commit,
				Commit: &history.CommitCall{Next: e.Position, Install: true}}}
			operations = append(operations, porcupine.Operation{Input: o, Call: 0, Return: history.Never})
		}
	}
	return operations
}

// appends reports whether an operation would add an entry.
func appends(o *history.Operation) bool {
	return o.Kind == history.Rebase || o.Kind == history.Commit && !o.Commit.Refresh()
}

// written is the position of the entry that an operation adds.
func written(o *history.Operation) history.Position {
	switch {
	case o.Kind == history.Commit:
		return o.Commit.Next
	case o.Applied():
		return o.Result.Position
	}
	return o.Rebase.Next
}
