package check

import (
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// ConfirmedKept is the first promise of the commit protocol: what every replica has confirmed is kept,
// whatever fails next, unless every copy is lost. A position for which a writer that asked for
// replicas was answered OK is in the lineage, and with it everything before it.
//
// It is broken when a confirmation is claimed that the replicas did not give, when a store that lost its head
// takes other entries in place of confirmed ones, and when an owner rebases on a state that lacks them. The
// last has no exception: an owner whose state lacks confirmed entries was superseded before they were
// confirmed, so it may not rebase. An install that has no events, and on which nothing was served, is nothing to lose.
func ConfirmedKept(t *Tile) {
	if !t.Unknown.IsZero() {
		return // NoFork reports it
	}
	reported := map[history.Position]bool{}
	for _, o := range t.Operations {
		if at := o.Result.Position; !confirmed(o) || t.survived(at) || at.Seq < t.Since.Seq || reported[at] ||
			t.gaveUp(o) || t.lost(o.At) || t.waiting(o) {
			continue
		}
		reported[o.Result.Position] = true
		t.breaks(o.Returned, "%s was answered that every replica holds %s, which did not survive%s", o.Actor(),
			o.Result.Position, t.voidedBy(o.Result.Position))
	}
}

// waiting reports whether an operation confirmed a batch that had not come into the journal that it waits for: nothing
// was answered, and a living owner decides its actions again. A tile that writes behind waits for no journal, but where
// its owner had to install itself anew, it asks whether the journal is another owner's before it answers.
func (t *Tile) waiting(o *history.Operation) bool {
	at, class := o.Result.Position, t.class()
	return o.Kind == history.Commit && (class == tile.WriteThrough || class == tile.WriteBehind && o.Commit.Install) &&
		!t.Entries[at].Rebase && !t.journaled[journaled{o.Actor(), at}]
}

// gaveUp reports whether an operation is an install without events whose claimant served nothing on it: it found its
// journal ahead of the stream, and rebased on that under another epoch, or a process that was quicker did.
func (t *Tile) gaveUp(install *history.Operation) bool {
	if c := install.Commit; c == nil || !c.Install || c.Events > 0 || len(c.Actions) > 0 {
		return false
	}
	rebased := false
	for _, o := range t.Operations {
		switch {
		case o.At < install.At || !appends(o):
		case o.Kind == history.Rebase && t.survived(written(o)) && o.Rebase.Epoch > install.Commit.Epoch:
			rebased = true
		case o.Actor() != install.Actor():
		case o.Kind == history.Commit && o.Commit.Epoch == install.Commit.Epoch && o.Commit.Next != install.Commit.Next:
			return false
		}
	}
	return rebased
}

// confirmed reports whether an operation was answered with the replicas' confirmation.
func confirmed(o *history.Operation) bool {
	if o.Open() || o.Result.Outcome != history.OK {
		return false
	}
	return o.Kind == history.Commit && o.Commit.Replicas != 0 || o.Kind == history.Rebase && o.Rebase.Replicas != 0
}

// voidedBy says which rebase of the lineage stands where a lost position would be.
func (t *Tile) voidedBy(at history.Position) string {
	for _, e := range t.Lineage {
		if e.Rebase && e.Position.Seq > at.Seq && e.Base.Seq <= at.Seq && !t.descends(e.Base, at) {
			who := "an unknown client"
			if len(e.Presented) > 0 {
				who = e.Presented[0].Actor()
			}
			return "; the rebase at " + e.Position.String() + " by " + who + " goes on from " + e.Base.String()
		}
	}
	return ""
}

// FailClosed is invariant 8 as far as a missing owner hash goes: absent is not epoch zero. Between an
// auditor's seeing that a tile has no owner hash and its seeing that it has one again, an install or a rebase
// under that epoch was on its way.
//
// It is broken when the store accepts any commit while the owner hash is missing: an owner that was silent for
// longer than its hash lived then goes on without asking the authority.
//
// A failover in between ends the check, since the two looks were at different copies. So does the tile's first
// owner, which OneWriter checks.
func FailClosed(t *Tile) {
	absent := map[string]int64{} // by auditor: since when
	for _, r := range t.Records {
		if r.Kind != history.SawOwner {
			continue
		}
		since, gone := absent[r.Actor()]
		delete(absent, r.Actor())
		if r.Owner.Epoch == 0 {
			absent[r.Actor()] = r.At
			if r.Asked > 0 { // an install may have come between the look and its record
				absent[r.Actor()] = r.Asked
			}
			continue
		}
		if gone && !t.failover(since, r.At) && !t.installUnderWay(r.Owner, since, r.At) {
			t.breaks(r.At, "the owner hash came back under epoch %d of %s without an install", r.Owner.Epoch,
				r.Owner.Contact)
		}
	}
}

func (t *Tile) installUnderWay(owner *history.Owner, from, to int64) bool {
	for _, o := range t.Operations {
		if o.At > to || o.Returned < from {
			continue
		}
		switch {
		case o.Kind == history.Commit && o.Commit.Install && o.Commit.Epoch == owner.Epoch,
			o.Kind == history.Rebase && o.Rebase.Epoch == owner.Epoch:
			return true
		}
	}
	return false
}
