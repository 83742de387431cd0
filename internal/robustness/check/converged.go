package check

import "github.com/tilefence/tilefence/internal/robustness/history"

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
