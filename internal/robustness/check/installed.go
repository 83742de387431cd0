package check

import "github.com/tilefence/tilefence/internal/robustness/history"

// InstalledBeforeServed is rule 3: no owner plays a tick under an epoch that a failover could undo. Before a
// claimant's first commit that is no install comes an install or a rebase, under the same epoch, that every
// replica has confirmed.
//
// It is broken when a processor trusts the master's answer to its install.
func InstalledBeforeServed(t *Tile) {
	type reign struct {
		actor string
		epoch uint64
	}
	installed := map[reign]bool{}
	for _, e := range t.answersAndCalls() {
		o := e.op
		switch {
		case e.answer && confirmed(o) && (o.Kind == history.Rebase || o.Commit.Install):
			installed[reign{o.Actor(), uint64(o.Result.Position.Epoch)}] = true
		case !e.answer && o.Kind == history.Commit && !o.Commit.Install:
			r := reign{o.Actor(), uint64(o.Commit.Epoch)}
			if !installed[r] {
				installed[r] = true // report it once
				t.breaks(o.At, "%s commits a tick under epoch %d, whose install was not confirmed", o.Actor(),
					o.Commit.Epoch)
			}
		}
	}
}
