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
			if first := served[epoch]; first != nil && first.Actor() != o.Actor() {
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
