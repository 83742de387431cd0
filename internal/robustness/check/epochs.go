package check

import (
	"cmp"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// EpochsUnique means: the authority grants no epoch to two claims, and an epoch that was ever served is granted to
// nobody else, also not by an authority that was put back to an older state: claimants tell it what the
// store and the checkpoint have seen (Claim.Above). Served means that every replica confirmed an install or
// a rebase under it.
//
// It is broken when a release, or the retention of old rows, forgets the epoch, when two promotions read and
// write in two steps, or when a claimant does not tell the authority what it knows.
//
// An authority that was put back may grant again an epoch that nobody had served yet, since nobody can know
// of it; the two claimants then meet at the store, and OneWriter judges how that ends.
func EpochsUnique(t *Tile) []Violation {
	var found []Violation
	served := map[fence.Epoch]int64{} // when it was known to be confirmed
	for i := range t.Operations {
		if o := &t.Operations[i]; confirmed(o) && (o.Kind == history.Rebase || o.Commit.Install) {
			if at, known := served[o.Result.Position.Epoch]; !known || o.Returned < at {
				served[o.Result.Position.Epoch] = o.Returned
			}
		}
	}
	granted := map[fence.Epoch]*history.Operation{}
	for _, e := range t.answersAndCalls() {
		o := e.op
		if !e.answer || o.Kind != history.Claim && o.Kind != history.Promote || o.Result.Outcome != history.OK {
			continue
		}
		g := o.Result.Grant
		first := granted[g.Epoch]
		if first == nil {
			granted[g.Epoch] = o
			continue
		}
		if first.Result.Grant.ID == g.ID {
			continue
		}
		since, wasServed := served[g.Epoch]
		if t.restored(first.At, o.Returned) && (!wasServed || since > o.At) {
			continue
		}
		found = append(found, violation(o.Returned, "epoch %d was granted to %s and again to %s", g.Epoch, first.Actor(), o.Actor()))
	}
	return found
}

// answersAndCalls lists the beginnings and ends of operations in order of time. Operations that are open
// have no end.
func (t *Tile) answersAndCalls() []event {
	events := make([]event, 0, 2*len(t.Operations))
	for i := range t.Operations {
		o := &t.Operations[i]
		events = append(events, event{o, o.At, false})
		if !o.Open() {
			events = append(events, event{o, o.Returned, true})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return events
}
