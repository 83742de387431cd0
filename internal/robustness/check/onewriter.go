package check

import (
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// OneWriter is invariant 1: along the lineage epochs never decrease, and of one epoch all entries come from
// one claimant, also of those that did not survive.
//
// It is broken when the store takes a write of a lower epoch, or when two claimants are given one epoch and
// both get entries accepted. The writer of an entry is the client that was answered that it is in the store; an
// entry without such an answer has no writer.
//
// An authority that was restored to an older state may grant an epoch again that only lost copies
// of the store knew: its first claimant was answered by a master alone. After a restore only writers count that
// the replicas confirmed, or whose batch survived, and of before a loss of every copy none does. A rebase that was
// not confirmed may survive because its state is in a checkpoint; its writer does not count for that.
func OneWriter(t *Tile) {
	for i := 1; i < len(t.Lineage); i++ {
		before, e := t.Lineage[i-1], t.Lineage[i]
		if e.Position.Epoch < before.Position.Epoch {
			t.breaks(e.SeenAt, "epoch decreases from %s to %s", before.Position, e.Position)
		}
	}
	type author struct {
		name string
		at   history.Position
	}
	authors := map[fence.Epoch]author{}
	restored := t.restored(0, t.FinalAt)
	for _, o := range t.Operations {
		if o.Kind != history.Commit && o.Kind != history.Rebase || !o.Applied() || o.Kind == history.Commit &&
			o.Commit.Refresh() {
			continue
		}
		at := o.Result.Position
		kept := t.survived(at) && o.Kind != history.Rebase
		if restored && (t.lost(o.At) || !kept && !confirmed(o)) {
			continue
		}
		first, known := authors[at.Epoch]
		switch {
		case !known:
			authors[at.Epoch] = author{o.Actor(), at}
		case first.name != o.Actor():
			t.breaks(o.Returned, "epoch %d has two writers: %s was answered that %s is its own, %s that %s is",
				at.Epoch, first.name, first.at, o.Actor(), at)
			authors[at.Epoch] = author{o.Actor(), at} // report each change once
		}
	}
}
