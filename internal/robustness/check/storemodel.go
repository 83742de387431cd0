package check

import (
	"github.com/anishathalye/porcupine"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// tileState is memfence.State as far as the answers to commits and rebases depend on it.
type tileState struct {
	owner   fence.Epoch // zero: no owner hash
	contact string
	last    history.Position
	snap    fence.Epoch // of the snapshot
}

// storeModel is the whole specification, for a store of which one copy answers. An owner hash may have
// expired, or been deleted, before any write.
func (t *Tile) storeModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{tileState{}} },
		Step: func(state, input, _ any) []any {
			s, o := state.(tileState), input.(*history.Operation)
			var next []any
			if got, ok := s.step(o); ok {
				next = append(next, got)
			}
			if s.owner != 0 {
				s.owner, s.contact = 0, ""
				if got, ok := s.step(o); ok {
					next = append(next, got)
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

func (t *Tile) storeOperations() []porcupine.Operation {
	return t.calls(func(o *history.Operation) bool {
		switch {
		case o.Kind != history.Commit && o.Kind != history.Rebase,
			o.Result.Outcome == history.NotApplied, o.Result.Outcome == history.Invalid:
			return false
		case o.Open() && o.Kind == history.Commit && o.Commit.Refresh():
			return false // it may keep an owner hash alive, which the model leaves open anyway
		}
		return true
	})
}

// step runs one operation; ok is false if the specification would have answered otherwise.
func (s tileState) step(o *history.Operation) (next tileState, ok bool) {
	var reason string
	var duplicate bool
	if o.Kind == history.Commit {
		next, reason, duplicate = s.commit(o.Commit)
	} else {
		next, reason, duplicate = s.rebase(o.Rebase)
	}
	switch {
	case o.Open():
		return next, true
	case o.Applied():
		return next, reason == "" && duplicate == o.Result.Duplicate && next.last == o.Result.Position
	}
	told := o.Result.Current
	return s, reason == o.Result.Reason && told.Epoch == s.owner && told.Contact == s.contact && told.Position == s.last
}

func (s tileState) commit(c *history.CommitCall) (next tileState, reason string, duplicate bool) {
	reason = tableReason(c, &history.Owner{Epoch: s.owner, Contact: s.contact, Position: s.last})
	if reason != "" {
		return s, reason, false
	}
	duplicate = !c.Refresh() && s.last == c.Next
	s.owner, s.contact, s.last = c.Epoch, c.Contact, c.Next
	return s, "", duplicate
}

func (s tileState) rebase(r *history.RebaseCall) (next tileState, reason string, duplicate bool) {
	switch {
	case s.last.Epoch == r.Epoch && s.last.Chain == r.Next.Chain && (s.owner == 0 || s.contact == r.Contact):
		s.owner, s.contact = r.Epoch, r.Contact
		return s, "", true
	case r.Epoch <= max(s.owner, s.last.Epoch, s.snap):
		return s, "stale", false
	case r.Next.Seq <= s.last.Seq, r.Replaces != nil && *r.Replaces != s.last:
		return s, "behind", false
	}
	return tileState{owner: r.Epoch, contact: r.Contact, last: r.Next, snap: r.Epoch}, "", false
}
