package check

import (
	"slices"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// RejectedStops is the second half of invariant 7: a writer that learned from the authority that the
// tile belongs to another claim presents no commit and no rebase any more. Its successor in the same process is
// another client. A record below its own epoch shows an authority that was restored: the writer may show the batch
// that was refused once more, to see whether a later owner moves, and no other, unless the store takes it: then a
// failover has lost the later owner's install. An owner that looks although the store has refused it nothing may go
// on: the holder of the record may be dead, and the store decides.
//
// It is broken when a processor misreads the authority's answer, or keeps presenting a batch from before it. It does
// not see an owner that goes on after it has handed its tile over, until the store has refused it.
func RejectedStops(t *Tile) {
	claims := map[string]string{} // ClaimID to the client that presented it
	for _, o := range t.Operations {
		if o.Claim != nil {
			claims[o.Claim.ID] = o.Actor()
		}
	}
	standings := map[string]*standing{}
	for _, o := range t.answersAndCalls() {
		s := standings[o.op.Actor()]
		if s == nil {
			s = &standing{}
			standings[o.op.Actor()] = s
		}
		if !o.answer {
			if s.breaks(o.op) {
				t.breaks(o.op.At, "%s presents a %s under epoch %d after it learned that %s holds the tile under %d",
					o.op.Actor(), o.op.Kind, s.grant.Epoch, s.to.Contact, s.to.Epoch)
				s.over = 0
			}
			continue
		}
		s.hear(&o, claims)
	}
}

// standing is what a client knows of its right to a tile.
type standing struct {
	grant history.Grant
	over  int64 // when it learned that the tile has another owner; zero: it did not
	to    history.Grant
	shown history.Position // by the commit that it presented last

	refused int64 // when the store had refused it; zero: it did not, or a write was applied since
}

// breaks reports whether a call is a write that the client knows it has no right to.
func (s *standing) breaks(o *history.Operation) bool {
	if o.Kind != history.Commit {
		return s.over != 0 && o.Kind == history.Rebase
	}
	again := o.Commit.Next == s.shown && s.to.Epoch < s.grant.Epoch
	s.shown = o.Commit.Next
	return s.over != 0 && !again
}

// hear takes an answer. claims are ClaimIDs and the clients that presented them.
func (s *standing) hear(o *event, claims map[string]string) {
	r := &o.op.Result
	switch o.op.Kind {
	case history.Commit, history.Rebase:
		switch {
		case r.Applied():
			s.refused = 0
		case r.Outcome == history.Refused && s.refused == 0:
			s.refused = o.at
		}
		if r.Applied() && s.to.Epoch < s.grant.Epoch {
			s.over = 0
		}
		return
	case history.Lookup:
		if s.refused == 0 || o.op.At < s.refused { // it may have asked for another reason, and not know the answer yet
			return
		}
	}
	switch g := r.Grant; {
	case g == nil || g.Epoch == 0:
	case claims[g.ID] == o.op.Actor() && r.Outcome == history.OK:
		s.grant, s.over = *g, 0
	case s.grant.Epoch > 0 && g.ID != s.grant.ID:
		s.over, s.to = o.at, *g
	}
}

// RejectedIsTold is the first half of invariant 7: a writer refused as stale learns the epoch that replaced
// it, above its own, and the contact; and a processor that ends superseded names both. The contact of a tile
// that was released meanwhile, or whose owner hash has expired, is empty. Where every copy was lost, or the authority
// restored, an owner may also give way to an earlier one that has gone on.
//
// It is broken when a refusal does not name the current owner, or when the store takes an owner without a
// contact.
func RejectedIsTold(t *Tile) {
	for _, o := range t.Operations {
		if o.Kind != history.Commit || o.Result.Outcome != history.Refused || o.Result.Reason != "stale" {
			continue
		}
		current := o.Result.Current
		switch {
		case current.Epoch == 0 && current.Position.Epoch <= o.Commit.Epoch:
			t.breaks(o.Returned, "%s was refused as stale under epoch %d by a stream that ends at %s", o.Actor(),
				o.Commit.Epoch, current.Position)
		case current.Epoch > 0 && (current.Epoch <= o.Commit.Epoch || current.Contact == ""):
			t.breaks(o.Returned, "%s was refused as stale under epoch %d by epoch %d at %q", o.Actor(),
				o.Commit.Epoch, current.Epoch, current.Contact)
		}
	}
	for _, r := range t.Records {
		if r.Kind != history.Life || r.Life.Successor == nil {
			continue
		}
		if s := r.Life.Successor; s.Epoch <= r.Life.Epoch && !t.restored(0, r.At) && !t.lost(0) {
			t.breaks(r.At, "%s ended under epoch %d, superseded by epoch %d at %q", r.Actor(), r.Life.Epoch, s.Epoch,
				s.Contact)
		}
	}
}

// restored reports whether the authority was restored to an older state in a span of time.
func (t *Tile) restored(from, to int64) bool {
	return slices.ContainsFunc(t.Operations, func(o *history.Operation) bool {
		return o.Kind == history.Restore && o.At <= to && o.Returned >= from
	})
}

// event is a call or an answer of an operation.
type event struct {
	op     *history.Operation
	at     int64
	answer bool
}
