package check

import (
	"slices"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// SequenceClimbs is invariant 2: along the lineage each sequence is one more than the one before, and more
// than it at a rebase. In the stream that is left, the same, whatever lies between; and no rebase of a tile
// takes it below a sequence that any auditor saw in the history that survived.
//
// It is broken when the store takes an entry at or before its end, when a rebase does not jump, or when a
// tile begins anew at a low sequence after its owner hash expired.
func SequenceClimbs(t *Tile) {
	for i := 1; i < len(t.Lineage); i++ {
		before, e := t.Lineage[i-1], t.Lineage[i]
		switch {
		case e.Position.Seq <= before.Position.Seq:
			t.breaks(e.SeenAt, "sequence falls from %s to %s", before.Position, e.Position)
		case !e.Rebase && e.Position.Seq != before.Position.Seq+1:
			t.breaks(e.SeenAt, "sequence jumps from %s to %s without a rebase", before.Position, e.Position)
		}
	}
	for i := 1; i < len(t.Final.Entries); i++ {
		before, e := &t.Final.Entries[i-1], &t.Final.Entries[i]
		if e.Position.Seq <= before.Position.Seq {
			t.breaks(t.FinalAt, "the stream holds %s after %s", e.Position, before.Position)
		}
	}
	t.seenToFall()
}

// seenToFall finds entries of the lineage that an auditor saw only after it had seen a later one: the stream
// had gone on, and then filled the place before. Where every copy of the later one was lost between, a slow auditor
// sees both.
func (t *Tile) seenToFall() {
	latest := map[string]*history.Record{}
	for _, r := range t.Records {
		if r.Kind != history.Saw || !t.survived(r.Entry.Position) {
			continue
		}
		last := latest[r.Actor()]
		if last != nil && r.Entry.Position.Seq < last.Entry.Position.Seq && !t.lost(last.At) {
			t.breaks(r.At, "%s appeared in the stream after %s", r.Entry.Position, last.Entry.Position)
			continue
		}
		latest[r.Actor()] = r
	}
}

// NoFork is invariant 3: each entry names the position it follows, the entry before it is there, its chain
// is its content's, and everything in the stream was presented by a client as it is there.
//
// It is broken when the store appends without comparing positions, or compares them without the chain: the
// entry then follows something other than what its writer meant, or two histories grow from one place in
// what readers see.
//
// Entries of stores that are dead or void may contradict each other; the chain distinguishes them.
// Within one stream, or along the lineage, none may.
func NoFork(t *Tile) {
	for _, e := range t.Entries {
		if e.Damage != "" {
			t.breaks(e.SeenAt, "%s does not verify: %s", e.Position, e.Damage)
		}
		if e.Seen && len(e.Presented) == 0 && !t.partial {
			t.breaks(e.SeenAt, "%s is in the stream, and no client presented it", e.Position)
		}
		if e.Seen && !e.Rebase {
			t.followsAsPresented(e)
		}
	}
	for i := 1; i < len(t.Final.Entries); i++ {
		before, e := &t.Final.Entries[i-1], &t.Final.Entries[i]
		if e.Prev != before.Position && !e.Rebase {
			t.breaks(t.FinalAt, "the stream holds %s, which follows %s, after %s", e.Position, e.Prev,
				before.Position)
		}
	}
	if !t.Unknown.IsZero() {
		t.breaks(t.FinalAt,
			"the history that survived leads back to %s, which no client presented and no observer saw", t.Unknown)
	}
	t.heldTogether()
}

func (t *Tile) followsAsPresented(e *Entry) {
	for _, o := range e.Presented {
		if o.Kind == history.Commit && o.Commit.Prev != e.Prev {
			t.breaks(e.SeenAt, "%s was presented to follow %s and follows %s", e.Position, o.Commit.Prev, e.Prev)
			return
		}
	}
}

// heldTogether requires that the position an owner hash vouches for is where its stream ends.
func (t *Tile) heldTogether() {
	if f := t.Final; f.Owner.Epoch != 0 && f.Owner.Position != f.End {
		t.breaks(t.FinalAt, "the owner hash vouches for %s, and the stream ends at %s", f.Owner.Position, f.End)
	}
}

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
