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
func NoFork(t *Tile) []Violation {
	var found []Violation
	for _, e := range t.Entries {
		if e.Damage != "" {
			found = append(found, violation(e.SeenAt, "%s does not verify: %s", e.Position, e.Damage))
		}
		if e.Seen && len(e.Presented) == 0 {
			found = append(found, violation(e.SeenAt, "%s is in the stream, and no client presented it", e.Position))
		}
		if e.Seen && !e.Rebase {
			found = append(found, followsAsPresented(e)...)
		}
	}
	for i := 1; i < len(t.Final.Entries); i++ {
		before, e := &t.Final.Entries[i-1], &t.Final.Entries[i]
		if e.Prev != before.Position {
			found = append(found, violation(t.FinalAt, "the stream holds %s, which follows %s, after %s", e.Position,
				e.Prev, before.Position))
		}
	}
	if !t.Unknown.IsZero() {
		found = append(found, violation(t.FinalAt,
			"the history that survived leads back to %s, which no client presented and no observer saw", t.Unknown))
	}
	return append(found, t.heldTogether()...)
}

func followsAsPresented(e *Entry) []Violation {
	for _, o := range e.Presented {
		if o.Kind == history.Commit && o.Commit.Prev != e.Prev {
			return []Violation{violation(e.SeenAt, "%s was presented to follow %s and follows %s", e.Position,
				o.Commit.Prev, e.Prev)}
		}
	}
	return nil
}

// heldTogether requires that the position an owner hash vouches for is where its stream ends.
func (t *Tile) heldTogether() []Violation {
	f := t.Final
	if f.Owner.Epoch == 0 || f.Owner.Position == f.End {
		return nil
	}
	return []Violation{violation(t.FinalAt, "the owner hash vouches for %s, and the stream ends at %s",
		f.Owner.Position, f.End)}
}
