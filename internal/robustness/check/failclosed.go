package check

import "github.com/tilefence/tilefence/internal/robustness/history"

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
