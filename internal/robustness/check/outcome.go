package check

import (
	"slices"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// OneOutcome is invariant 12 as far as a tile decides it: an action has one outcome, however often and
// wherever it is asked for, and its effects happen at most once. Every answer is the outcome that the
// history records; an answer for which the history that survived has nothing is one whose batch was lost
// (see OwnerKeeps and ConfirmedKept), never one that was not decided at all.
//
// It is broken when a successor does not remember what was decided, or a processor answers before its batch
// is in the store.
//
// If an action's first batch was lost, the next owner may decide it again and differently.
func OneOutcome(t *Tile) {
	actions := t.decisions()
	first := map[string]*history.Operation{}
	for _, o := range t.Operations {
		if o.Kind != history.Submit || o.Intent.Action == "" || o.Open() || o.Result.Outcome != history.OK {
			continue
		}
		id, answer := o.Intent.Action, o.Result.Answer
		d := actions[id]
		switch {
		case d == nil || !d.outcomes[answer]:
			t.breaks(o.Returned, "%s was answered that action %s is %s, which no batch decided", o.Actor(), id,
				answer)
		case d.lost:
		case d.survived != "" && d.survived != answer:
			t.breaks(o.Returned, "%s was answered that action %s is %s, the history says %s", o.Actor(), id, answer,
				d.survived)
		case first[id] != nil && first[id].Result.Answer != answer:
			t.breaks(o.Returned, "action %s was answered %s and %s", id, first[id].Result.Answer, answer)
		}
		if first[id] == nil {
			first[id] = o
		}
	}
}

// decision is what the batches that were in some store say of an action.
type decision struct {
	outcomes map[string]bool
	survived string // the outcome in the lineage; empty: none
	lost     bool   // a batch that decided it did not survive
}

func (t *Tile) decisions() map[string]*decision {
	decided, inStore := map[string]*decision{}, t.inStore()
	for at, e := range t.Entries {
		if !inStore[at] {
			continue
		}
		for _, a := range e.Actions {
			d := decided[a.ID]
			if d == nil {
				d = &decision{outcomes: map[string]bool{}}
				decided[a.ID] = d
			}
			d.outcomes[a.Outcome] = true
			if t.survived(at) {
				d.survived = a.Outcome
			} else {
				d.lost = true
			}
		}
	}
	return decided
}

// inStore are the entries that were in some store: those that were seen or acknowledged, and those that they follow.
// The owner of a batch may learn that it is there only when its successor has gone on from it and all is lost again.
func (t *Tile) inStore() map[history.Position]bool {
	in := map[history.Position]bool{}
	for at, e := range t.Entries {
		for known := e.Seen || acknowledged(e); known && e != nil && !in[at]; e = t.Entries[at] {
			in[at] = true
			if at = e.Prev; e.Rebase {
				break
			}
		}
	}
	return in
}

// acknowledged reports whether a client was answered that an entry is in the store.
func acknowledged(e *Entry) bool {
	return slices.ContainsFunc(e.Presented, (*history.Operation).Applied)
}
