package check

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// ViewsOrdered is invariant 11 while things happen, and invariant 9: a watcher takes only the frame that
// follows what it holds, never the same twice, and never goes to a lower epoch, not even when it starts its
// view over. It is given less of the history that survived than it has held only where a failover may have taken that
// back for a while. A bridge forwards no entry twice in one life, and never one of a lower epoch after one of a
// higher; it may leave out entries, which readers then repair.
//
// It is broken when a relay that is cut off takes what it has for all there is, when a reader compares sequences
// without chains, arbitrates by itself, or accepts data from a store that has regressed.
func ViewsOrdered(t *Tile) {
	type view struct {
		at    history.Position
		epoch fence.Epoch
		given map[history.Position]bool
	}
	views := map[string]*view{}
	for _, r := range t.Records {
		if r.Kind != history.Reset && r.Kind != history.Frame && r.Kind != history.Published {
			continue
		}
		v := views[r.Actor()]
		if v == nil {
			v = &view{given: map[history.Position]bool{}}
			views[r.Actor()] = v
		}
		at := r.Position
		if r.Entry != nil {
			at = r.Entry.Position
		}
		if at.Epoch < v.epoch {
			t.breaks(r.At, "%s went from epoch %d to %s", r.Actor(), v.epoch, at)
		}
		switch {
		case r.Kind == history.Frame && r.Entry.Prev != v.at:
			t.breaks(r.At, "%s holds %s and took %s, which follows %s", r.Actor(), v.at, at, r.Entry.Prev)
		case r.Kind == history.Published && v.given[at]:
			t.breaks(r.At, "%s forwarded %s twice", r.Actor(), at)
		case r.Kind == history.Reset && t.sentBack(v.at, at) && !t.failover(r.At-int64(regressed), r.At):
			t.breaks(r.At, "%s holds %s and was sent back to %s", r.Actor(), v.at, at)
		}
		v.at, v.epoch, v.given[at] = at, max(v.epoch, at.Epoch), true
	}
}

// regressed is the time after a failover in which the store may show less than before: the old master still answers, or
// the owner has not appended again. Faults last less.
const regressed = 30 * time.Second

// sentBack reports whether a client went from one place to an earlier one, both in the history that survived.
func (t *Tile) sentBack(from, to history.Position) bool {
	a, kept := t.Survives[from]
	b, known := t.Survives[to]
	return kept && known && b < a && from.Epoch == to.Epoch
}

// Converged is invariant 11 at quiescence: when the faults are over and everything has come to rest, the
// authority's row, the owner hash and the stream name one owner, every watcher holds the stream's last
// position, and every state there is the same.
//
// An authority that was restored to an older state does not know the owner that serves, until a
// claim is above the epoch in the store; its row is then not compared.
//
// It is broken when a fork does not heal, when a gap is not noticed, or when two processors both believe
// that they own the tile.
func Converged(t *Tile) {
	f := t.Final
	switch {
	case f.Owner.Epoch == 0:
		t.breaks(t.FinalAt, "the tile has no owner")
	case (f.Row.Epoch != f.Owner.Epoch || f.Row.Contact != f.Owner.Contact) && !t.restored(0, t.FinalAt):
		t.breaks(t.FinalAt, "the authority says epoch %d of %q, the owner hash epoch %d of %q", f.Row.Epoch,
			f.Row.Contact, f.Owner.Epoch, f.Owner.Contact)
	}
	for _, r := range t.Records {
		if r.Kind != history.Held {
			continue
		}
		if r.Position != f.End {
			t.breaks(r.At, "%s holds %s, the stream ends at %s", r.Actor(), r.Position, f.End)
		} else if f.State != "" && r.Digest != "" && r.Digest != f.State {
			t.breaks(r.At, "%s holds another state at %s than the stream gives", r.Actor(), r.Position)
		}
	}
}

// EnoughTraffic requires that at least commits batches (refreshes and installs do not count) and actions
// answered intents came before the first fault. A campaign that breaks an idle system proves nothing, and
// looks as green as one that proves much.
func EnoughTraffic(h *history.History, commits, actions int) []Violation {
	until := h.FirstFault()
	batches, answers := 0, 0
	for i := range h.Operations {
		switch o := &h.Operations[i]; {
		case o.Returned > until || o.Open():
		case o.Kind == history.Commit && o.Applied() && o.Commit.Events > 0:
			batches++
		case o.Kind == history.Submit && o.Result.Outcome == history.OK:
			answers++
		}
	}
	var found []Violation
	for _, part := range []struct {
		what      string
		got, want int
	}{{"batches", batches, commits}, {"answered intents", answers, actions}} {
		if part.got < part.want {
			found = append(found, Violation{Check: "enough traffic",
				Detail: fmt.Sprintf("%d %s before the first fault, want at least %d", part.got, part.what, part.want)})
		}
	}
	return found
}
