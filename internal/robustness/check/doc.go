// Package check judges recorded histories: pure functions from what package history recorded to the
// promises that were broken.
//
//	h := history.Join(records)
//	for _, v := range check.Run(h, check.All()) {
//		t.Error(v)
//	}
//
// Each check has a file of its own, which says what is promised, how it could be broken, and what the check
// does not see. The invariants are those of the architecture: one writer, a sequence that only climbs, no
// fork, complete replay, idempotent commits, nothing acknowledged lost while its owner lives, rejected
// writers that stop, views that converge, one outcome per action.
//
// # The lineage
//
// Most promises are about the history that survived: the entries one reaches from where a tile ended by
// going from each to the one it follows. At a rebase marker the way leads to the position of the state that
// the rebase installed, not to the entries it made void. Lineage computes it from what was presented and
// what auditors saw, so that entries trimmed long ago are in it too.
//
// # Limits
//
// A check sees only what was recorded. A history without final records (history.Final) has no lineage;
// Run then reports that as a violation of its own, since nothing else would be found. For the same reason a
// linearizability check that runs out of time is reported as a violation, of the check "undecided".
package check
