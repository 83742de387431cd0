package check

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// linearizeTimeout bounds one linearizability check, unless RunWithin gives another bound. An operation that stays open
// can be placed anywhere, so the time grows exponentially with their number.
const linearizeTimeout = 10 * time.Second

// undecided is the name under which Run reports a check that ran out of time. It differs from the check's own name,
// so that a mutant counts as found only if the check has found it.
const undecided = "undecided"

// linearize looks for an order of the operations that the model allows, within the tile's patience. illegal says what
// it means that there is none.
//
// Running out of time is reported like a broken promise: a check that decides nothing finds nothing.
func (t *Tile) linearize(m porcupine.Model, ops []porcupine.Operation, illegal string) {
	patience := cmp.Or(t.patience, linearizeTimeout)
	switch porcupine.CheckOperationsTimeout(m, ops, patience) {
	case porcupine.Illegal:
		t.breaks(t.FinalAt, "%d "+illegal, len(ops))
	case porcupine.Unknown:
		who := t.check
		t.check = undecided
		t.breaks(t.FinalAt, "%s: no verdict on %d operations within %v; check the history again with more time", who,
			len(ops), patience)
	}
}

// AuthorityLinearizable means: the authority's calls have an order that agrees with time and with the answers,
// each call checked by memfence.Authority on the tile's row. Calls whose answer never came may have taken
// effect at any time after they began, or never. Putting the authority back to an older state is one more
// operation, which sets the row.
//
// It is broken when a mint is not one conditional update, when an answer is read from a replica that is
// behind, when a release forgets the epoch, or when an ambiguous answer is resolved wrongly.
func AuthorityLinearizable(t *Tile) {
	model := porcupine.Model{
		Init: func() any { return history.Grant{} },
		Step: func(state, input, output any) (bool, any) {
			return stepAuthority(t.ID, state.(history.Grant), input.(*history.Operation))
		},
	}
	operations := t.calls(func(o *history.Operation) bool {
		switch o.Kind {
		case history.Claim, history.Promote, history.Release, history.Restore:
			return o.Result.Outcome != history.NotApplied
		case history.Lookup:
			return o.Result.Outcome == history.OK || o.Result.Outcome == history.NeverOwned
		}
		return false
	})
	t.linearize(model, operations, "calls to the authority have no order that explains their answers")
}

// stepAuthority runs one call on the executable specification, set to a row, and compares the answers.
func stepAuthority(id fence.TileID, row history.Grant, o *history.Operation) (bool, history.Grant) {
	ctx := context.Background()
	if o.Kind == history.Restore {
		return true, *o.Row
	}
	a, err := AuthorityAt(ctx, id, row)
	if err != nil {
		return false, row // a row that no authority can have
	}
	var g fence.Grant
	switch o.Kind {
	case history.Claim:
		g, err = a.Claim(ctx, claimOf(id, o.Claim))
	case history.Promote:
		g, err = a.Promote(ctx, claimOf(id, o.Claim))
	case history.Lookup:
		g, err = a.Lookup(ctx, id)
	case history.Release:
		err = a.Release(ctx, fence.Grant{Tile: id, Epoch: o.Row.Epoch, Contact: o.Row.Contact, ID: claimID(o.Row.ID)})
	}
	next, lookupErr := a.Lookup(ctx, id)
	if lookupErr != nil {
		next = fence.Grant{}
	}
	return o.Open() || sameAnswer(o, g, err), history.GrantOf(next)
}

// sameAnswer compares what the specification answers with what was answered.
func sameAnswer(o *history.Operation, g fence.Grant, err error) bool {
	var lost *fence.LostError
	switch {
	case err == nil:
		return o.Result.Outcome == history.OK && (o.Kind == history.Release || *o.Result.Grant == history.GrantOf(g))
	case errors.As(err, &lost):
		return o.Result.Outcome == history.Lost && *o.Result.Grant == history.GrantOf(lost.Current)
	case errors.Is(err, fence.ErrNeverOwned):
		return o.Result.Outcome == history.NeverOwned
	case errors.Is(err, fence.ErrInvalidArgument):
		return o.Result.Outcome == history.Invalid
	}
	return false
}

// AuthorityAt makes an authority that knows one tile, whose row is as given; epoch zero stands for none.
func AuthorityAt(ctx context.Context, id fence.TileID, row history.Grant) (fence.Authority, error) {
	a := memfence.NewAuthority()
	if row.Epoch == 0 {
		return a, nil
	}
	c := fence.Claim{Tile: id, Contact: row.Contact, ID: claimID(row.ID), Floor: row.Epoch - 1}
	if row.Contact == "" {
		c.Contact = "released"
	}
	g, err := a.Claim(ctx, c)
	if err == nil && row.Contact == "" {
		err = a.Release(ctx, g)
	}
	return a, err
}

func claimOf(id fence.TileID, c *history.ClaimCall) fence.Claim {
	return fence.Claim{Tile: id, Contact: c.Contact, ID: claimID(c.ID), Expected: c.Expected, Floor: c.Floor}
}

func claimID(s string) (id fence.ClaimID) {
	b, _ := hex.DecodeString(strings.ReplaceAll(s, "-", "")) // what is no UUID gives the zero ID, which matches nothing
	copy(id[:], b)
	return id
}

// CommitsLinearizable means: the writes that survived have an order that agrees with time, with the answers and
// with memfence.State. While only one copy of the store ever answered, that is asked of every write and
// every answer, refusals and refreshes included, and an owner hash may expire at any moment.
//
// Once a failover was possible, a store may have said things that were undone. Then only writes of the
// lineage are asked: a write that was answered is in the history before any write that began after the
// answer. ConfirmedKept, OwnerKeeps and AnswersFollowTable check what else was answered. A master
// that was paused and wakes may, truthfully by what it knows, append, refresh and refuse; nothing it says is
// confirmed, and nothing it appends is in the lineage unless the true master took it too.
//
// It is broken when two copies answer at once and both are believed, and when a write is acknowledged before
// it is made.
func CommitsLinearizable(t *Tile) {
	if t.partial || t.failover(0, history.Never) {
		t.lineageInTime()
		return
	}
	t.linearize(t.storeModel(), t.storeOperations(),
		"writes have no order that explains their answers")
}

// lineageInTime looks for a write of the lineage that was answered before one of an earlier entry began. A write of
// the next entry appends it; a write of an earlier one is a retry, or re-appends what a failover lost. So an answer
// comes after the first call for each entry up to its own; and that suffices for an order: each entry in its place when
// the last of those calls has begun. An entry that no client presented (NoFork reports it) may have come at any time.
func (t *Tile) lineageInTime() {
	begun := make([]int64, len(t.Lineage)) // by entry: the first call
	for _, o := range t.Operations {
		if !appends(o) || !o.Open() && !o.Applied() {
			continue
		}
		if i, survives := t.Survives[written(o)]; survives && (begun[i] == 0 || o.At < begun[i]) {
			begun[i] = o.At
		}
	}
	for i := 1; i < len(begun); i++ {
		begun[i] = max(begun[i], begun[i-1])
	}
	for _, o := range t.Operations {
		if !appends(o) || !o.Applied() {
			continue
		}
		if i, survives := t.Survives[written(o)]; survives && o.Returned+2*int64(t.skew) < begun[i] {
			t.breaks(o.Returned, "%s was answered that %s is in the history before what comes before it was presented",
				o.Actor(), written(o))
		}
	}
}

// appends reports whether an operation would add an entry.
func appends(o *history.Operation) bool {
	return o.Kind == history.Rebase || o.Kind == history.Commit && !o.Commit.Refresh()
}

// written is the position of the entry that an operation adds.
func written(o *history.Operation) history.Position {
	switch {
	case o.Kind == history.Commit:
		return o.Commit.Next
	case o.Applied():
		return o.Result.Position
	}
	return o.Rebase.Next
}

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
