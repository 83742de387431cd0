package check

import (
	"cmp"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// EpochsUnique means: the authority grants no epoch to two claims, and no epoch is served by two. Served means
// that every replica confirmed an install or a rebase under it.
//
// It is broken when a release, or the retention of old rows, forgets the epoch, when two promotions read and
// write in two steps, or when a claim does not carry the epochs that the store and the checkpoint have
// seen (Claim.Floor).
//
// An authority that was restored to an older state may grant an epoch again: a claimant that looked at the
// store before the epoch was served there cannot know of it. One of the two then has to start over, so after
// a restore only serving is checked.
func EpochsUnique(t *Tile) {
	granted := map[fence.Epoch]*history.Operation{}
	served := map[fence.Epoch]*history.Operation{}
	for _, e := range t.answersAndCalls() {
		o := e.op
		if !e.answer {
			continue
		}
		if confirmed(o) && (o.Kind == history.Rebase || o.Commit.Install) {
			epoch := o.Result.Position.Epoch
			if first := served[epoch]; first != nil && first.Actor() != o.Actor() && !t.lost(first.At) {
				t.breaks(o.Returned, "epoch %d is served by %s and by %s", epoch, first.Actor(), o.Actor())
			}
			served[epoch] = o
		}
		if o.Kind != history.Claim && o.Kind != history.Promote || o.Result.Outcome != history.OK {
			continue
		}
		g := o.Result.Grant
		first := granted[g.Epoch]
		if first != nil && first.Result.Grant.ID != g.ID && !t.restored(first.At, o.Returned) {
			t.breaks(o.Returned, "epoch %d was granted to %s and again to %s", g.Epoch, first.Actor(), o.Actor())
		}
		granted[g.Epoch] = o
	}
}

// EpochsClimb means: an epoch that is granted is above every epoch that was granted before it was asked for.
//
// It is broken when the authority forgets an epoch: it was restored to an older state, or a standby was promoted that
// lacked the grant. Where the histories of all its clients are known, AuthorityLinearizable says more.
func EpochsClimb(t *Tile) {
	var grants []*history.Operation
	for _, o := range t.Operations {
		if (o.Kind == history.Claim || o.Kind == history.Promote) && !o.Open() && o.Result.Outcome == history.OK {
			grants = append(grants, o)
		}
	}
	slices.SortStableFunc(grants, func(a, b *history.Operation) int { return cmp.Compare(a.Returned, b.Returned) })
	highest := make([]*history.Operation, len(grants)) // up to each
	for i, o := range grants {
		if highest[i] = o; i > 0 && highest[i-1].Result.Grant.Epoch > o.Result.Grant.Epoch {
			highest[i] = highest[i-1]
		}
	}
	for _, o := range grants {
		before, _ := slices.BinarySearchFunc(grants, o.At-2*int64(t.skew),
			func(g *history.Operation, at int64) int { return cmp.Compare(g.Returned, at) })
		if before == 0 {
			continue
		}
		first, g := highest[before-1], o.Result.Grant
		if first.Result.Grant.Epoch >= g.Epoch && first.Result.Grant.ID != g.ID && !t.restored(first.At, o.Returned) {
			t.breaks(o.Returned, "%s was granted epoch %d after %s was granted %d: was the authority restored to an "+
				"older state?", o.Actor(), g.Epoch, first.Actor(), first.Result.Grant.Epoch)
		}
	}
}

// answersAndCalls lists the beginnings and ends of operations in order of time. Operations that are open
// have no end.
func (t *Tile) answersAndCalls() []event {
	events := make([]event, 0, 2*len(t.Operations))
	for _, o := range t.Operations {
		events = append(events, event{o, o.At, false})
		if !o.Open() {
			events = append(events, event{o, o.Returned, true})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return events
}

// InstalledBeforeServed is rule 3: no owner plays a tick under an epoch that a failover could undo. Before a
// claimant's first commit that is no install comes an install or a rebase, under the same epoch, that every
// replica has confirmed.
//
// It is broken when a processor trusts the master's answer to its install.
func InstalledBeforeServed(t *Tile) {
	type reign struct {
		actor string
		epoch uint64
	}
	installed := map[reign]bool{}
	for _, e := range t.answersAndCalls() {
		o := e.op
		switch {
		case e.answer && confirmed(o) && (o.Kind == history.Rebase || o.Commit.Install):
			installed[reign{o.Actor(), uint64(o.Result.Position.Epoch)}] = true
		case !e.answer && o.Kind == history.Commit && !o.Commit.Install:
			r := reign{o.Actor(), uint64(o.Commit.Epoch)}
			if !installed[r] {
				installed[r] = true // report it once
				t.breaks(o.At, "%s commits a tick under epoch %d, whose install was not confirmed", o.Actor(),
					o.Commit.Epoch)
			}
		}
	}
}

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
