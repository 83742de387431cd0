package check

import "github.com/tilefence/tilefence/internal/robustness/history"

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
