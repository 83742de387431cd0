package check

import (
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
