package check

import (
	"slices"
)

// ReplayComplete is invariant 4: a new owner's state includes every entry before its first own entry. The
// first entry of an epoch, unless it is a rebase, names as its predecessor the entry before it in the
// stream; an install that missed one is refused. Where the game can list what was applied, the final state
// has exactly the actions of the lineage, in its order: an owner that missed an entry would pass on a
// state without it.
//
// It is broken when the store accepts an install at a position that is not the stream's last.
func ReplayComplete(t *Tile) {
	for i := 1; i < len(t.Lineage); i++ {
		before, e := t.Lineage[i-1], t.Lineage[i]
		if e.Position.Epoch == before.Position.Epoch || e.Rebase {
			continue
		}
		for _, o := range e.Presented {
			if o.Applied() && o.Commit.Prev != before.Position {
				t.breaks(o.Returned, "%s was installed by an owner that had replayed to %s, and follows %s",
					e.Position, o.Commit.Prev, before.Position)
			}
		}
	}
	if t.Final.Applied == nil || !t.Unknown.IsZero() {
		return
	}
	if want := t.applied(); !slices.Equal(want, t.Final.Applied) {
		t.breaks(t.FinalAt,
			"the surviving history applied %d actions, the final state has %d; the first difference is %s", len(want),
			len(t.Final.Applied), difference(want, t.Final.Applied))
	}
}

// applied lists the actions that the lineage's batches applied, in order.
func (t *Tile) applied() []string {
	var ids []string
	for _, e := range t.Lineage {
		for _, a := range e.Actions {
			if a.Outcome == "applied" {
				ids = append(ids, a.ID)
			}
		}
	}
	return ids
}

func difference(want, got []string) string {
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			return "want " + w + ", have " + g
		}
	}
	return "none"
}
