package check

import (
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// OwnerKeeps is invariant 6: what a master acknowledged is kept while its owner lives and owns the tile.
// What the store acknowledged to a claimant is part of the history of everything that it acknowledges later to
// that claimant, and all of it survives if the claimant owns the tile at the end.
//
// It is broken when an owner goes on from a position that is not its own last, when it does not re-append
// what a failover lost, or when a store takes its batch on top of something else.
//
// An owner that finds, by an authority restored to an older state, that it was superseded without noticing
// takes the tile again as a newcomer does, by an install under a higher epoch, or by a rebase on what the stores have;
// that ends the comparison.
//
// What was acknowledged to an owner that was superseded before every replica confirmed it may be lost: that is
// the recovery point of the default durability. ConfirmedKept checks what was confirmed.
func OwnerKeeps(t *Tile) {
	if !t.Unknown.IsZero() {
		return // NoFork reports it
	}
	held := map[string]*history.Operation{} // by claimant: its last acknowledged write
	for _, o := range t.Operations {
		if o.Kind != history.Commit && o.Kind != history.Rebase || !t.settles(o) {
			continue
		}
		before := held[o.Actor()]
		back := before != nil && (t.replayed(o, before) || t.rejoined[o.Result.Position])
		if t.gaveUp(o) {
			if back {
				delete(held, o.Actor())
			}
			continue
		}
		if before == nil || back || o.Result.Position.Seq > before.Result.Position.Seq {
			held[o.Actor()] = o
		}
		if before != nil && !back {
			t.follows(o, before)
		}
	}
	t.ownedAtTheEnd(held)
}

// follows requires of two acknowledged writes of a claimant that the later position descends from the earlier one.
func (t *Tile) follows(o, before *history.Operation) {
	older, newer := before.Result.Position, o.Result.Position
	if o.Kind == history.Rebase && newer == older {
		return
	}
	if newer.Seq < older.Seq { // re-appended after a failover
		older, newer = newer, older
	}
	if !t.descends(newer, older) {
		t.breaks(o.Returned, "%s had %s acknowledged, and goes on at %s without it", o.Actor(), older, newer)
	}
}

// replayed reports whether a claimant came back as a newcomer, by an install under a higher epoch, or by a rebase on
// the state of one: another claimant owned the tile in between.
func (t *Tile) replayed(o, before *history.Operation) bool {
	held := before.Result.Position.Epoch
	if o.Kind == history.Rebase {
		e := t.Entries[o.Result.Position]
		return e != nil && e.Base.Epoch > held
	}
	return o.Commit.Install && o.Commit.Epoch > held
}

// settles reports whether an answer made its batch part of the claimant's state: an install counts when it
// is confirmed, since a claimant whose install is not starts over. A refresh does not: it may be sent beside a batch
// that is on the master and not folded yet. A batch that by the tile's class waits, for replicas or for the journal,
// counts when they have it.
func (t *Tile) settles(o *history.Operation) bool {
	if !o.Applied() || o.Kind == history.Commit && o.Commit.Refresh() {
		return false
	}
	if o.Kind == history.Rebase || o.Commit.Install {
		return o.Result.Outcome == history.OK && (o.Kind == history.Rebase || o.Commit.Replicas != 0)
	}
	switch class := t.class(); {
	case class == tile.Replicated, class == tile.ReplicatedActions && len(o.Commit.Actions) > 0:
		return o.Result.Outcome == history.OK
	case class == tile.WriteThrough:
		return t.journaled[journaled{o.Actor(), o.Result.Position}]
	}
	return true
}

// class is the tile's durability class.
func (t *Tile) class() tile.Durability {
	if t.Final == nil {
		return tile.Checkpointed
	}
	class, _ := tile.ParseDurability(t.Final.Class) // none: the default
	return class
}

func (t *Tile) ownedAtTheEnd(held map[string]*history.Operation) {
	if len(t.Lineage) == 0 {
		return
	}
	last := t.Lineage[len(t.Lineage)-1]
	for actor, o := range held {
		if len(last.Presented) == 0 || last.Presented[0].Actor() != actor || t.survived(o.Result.Position) {
			continue
		}
		t.breaks(o.Returned, "%s owns the tile at the end, and its acknowledged batch at %s is lost", actor,
			o.Result.Position)
	}
}

// HandedOverConfirmed means: an owner that hands its tile over builds on nothing that a failover could undo. When it
// ends, every batch of its own that the store has taken was confirmed by every replica.
//
// It is broken when a hand-over does not wait for the confirmation of its last tick, or of those before it if that one
// has no events.
func HandedOverConfirmed(t *Tile) {
	for _, r := range t.Records {
		if r.Kind != history.Life || !r.Life.Handed {
			continue
		}
		var taken, kept history.Position
		for _, o := range t.Operations {
			if o.Actor() != r.Actor() || o.Returned > r.At || !o.Applied() {
				continue
			}
			at := o.Result.Position
			if appends(o) && after(at, taken) {
				taken = at
			}
			if confirmed(o) && after(at, kept) {
				kept = at
			}
		}
		if after(taken, kept) {
			t.breaks(r.At, "%s handed the tile over at %s, and the replicas have confirmed %s", r.Actor(), taken, kept)
		}
	}
}

// after compares positions of one process: what it wrote under a later epoch came later.
func after(a, b history.Position) bool {
	return a.Epoch > b.Epoch || a.Epoch == b.Epoch && a.Seq > b.Seq
}

// AnswersKept is what the durability classes above the default promise: what a client was answered is in the history
// that survives the death of any process. A history says in its final records which tiles have such a class.
//
// It is broken when an owner answers before replicas or journal have the batch, and when a successor does not read what
// the journal has.
func AnswersKept(t *Tile) {
	if !t.Final.Kept || !t.Unknown.IsZero() {
		return // NoFork reports what is unknown
	}
	actions := t.decisions()
	for _, o := range t.Operations {
		if o.Kind != history.Submit || o.Intent.Action == "" || o.Open() || o.Result.Outcome != history.OK {
			continue
		}
		if d := actions[o.Intent.Action]; d == nil || d.survived == "" {
			t.breaks(o.Returned, "%s was answered that action %s is %s, and the history that survived does not have it",
				o.Actor(), o.Intent.Action, o.Result.Answer)
		}
	}
}
