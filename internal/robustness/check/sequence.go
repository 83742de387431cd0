package check

import "github.com/tilefence/tilefence/internal/robustness/history"

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
