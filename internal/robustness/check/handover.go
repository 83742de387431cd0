package check

import "github.com/tilefence/tilefence/internal/robustness/history"

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
