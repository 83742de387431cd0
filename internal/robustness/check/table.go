package check

import (
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// AnswersFollowTable means: each answer to a commit is the one that the commit table gives for the owner and the
// position that the answer itself names. It holds of every copy of the store, also of a paused master that
// wakes and of a replica that has lost entries: what they know may be wrong, what they conclude may not.
//
// It is broken by any row of the table that is missing or in the wrong order.
//
// What an answer names is all that is compared: whether it is true is for the other checks.
func AnswersFollowTable(t *Tile) {
	for _, o := range t.Operations {
		switch {
		case o.Open() || o.Kind != history.Commit:
		case o.Result.Outcome == history.Refused:
			if want := tableReason(o.Commit, o.Result.Current); want != o.Result.Reason {
				t.breaks(o.Returned, "a commit of %s after %s was refused as %q by epoch %d at %s; the table says %q",
					o.Commit.Next, o.Commit.Prev, o.Result.Reason, o.Result.Current.Epoch, o.Result.Current.Position,
					want)
			}
		case o.Applied() && o.Result.Position != o.Commit.Next:
			t.breaks(o.Returned, "a commit of %s was answered with %s", o.Commit.Next, o.Result.Position)
		case o.Applied() && o.Result.Duplicate && o.Commit.Refresh():
			t.breaks(o.Returned, "a refresh was answered as a duplicate")
		}
	}
}

// tableReason is the commit table of docs/wire.md for a store whose history ends at current.Position; an
// owner with epoch zero is missing. Empty means: to be applied. memfence.State is the specification, which
// needs the payload; a test holds the two together.
func tableReason(c *history.CommitCall, current *history.Owner) string {
	last, epoch := current.Position, current.Epoch
	if epoch == 0 {
		if !c.Install {
			return "noowner"
		}
		epoch = last.Epoch
	}
	switch {
	case c.Epoch < epoch:
		return "stale"
	case c.Epoch == current.Epoch && c.Contact != current.Contact:
		return "forked"
	case !c.Refresh() && last == c.Next:
		return ""
	case last.Seq < c.Prev.Seq:
		return "behind"
	case c.Epoch > epoch && !c.Install:
		return "noowner"
	case last != c.Prev && last.Epoch < c.Epoch:
		return "replay"
	case last != c.Prev:
		return "forked"
	}
	return ""
}
