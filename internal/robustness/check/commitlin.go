package check

import (
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
	if t.partial || t.failover(0, history.Never) {
		t.lineageInTime()
		return
	}
	t.linearize(t.storeModel(), t.storeOperations(),
		"writes have no order that explains their answers")
}

// lineageInTime looks for a write of the lineage that was answered before one of an earlier entry began. A write of
// the next entry appends it; a write of an earlier one is a retry, or re-appends what a failover lost. So an answer
// comes after the first call for each entry up to its own; and that suffices for an order: each entry in its place when
// the last of those calls has begun. An entry that no client presented (NoFork reports it) may have come at any time.
func (t *Tile) lineageInTime() {
	begun := make([]int64, len(t.Lineage)) // by entry: the first call
	for _, o := range t.Operations {
		if !appends(o) || !o.Open() && !o.Applied() {
			continue
		}
		if i, survives := t.Survives[written(o)]; survives && (begun[i] == 0 || o.At < begun[i]) {
			begun[i] = o.At
		}
	}
	for i := 1; i < len(begun); i++ {
		begun[i] = max(begun[i], begun[i-1])
	}
	for _, o := range t.Operations {
		if !appends(o) || !o.Applied() {
			continue
		}
		if i, survives := t.Survives[written(o)]; survives && o.Returned+2*int64(t.skew) < begun[i] {
			t.breaks(o.Returned, "%s was answered that %s is in the history before what comes before it was presented",
				o.Actor(), written(o))
		}
	}
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
