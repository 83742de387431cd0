package check

import (
	"cmp"
	"time"

	"github.com/anishathalye/porcupine"
)

// linearizeTimeout bounds one linearizability check, unless RunWithin gives another bound. An operation that stays open
// can be placed anywhere, so the time grows exponentially with their number.
const linearizeTimeout = 10 * time.Second

// undecided is the name under which Run reports a check that ran out of time. It differs from the check's own name,
// so that a mutant counts as found only if the check has found it.
const undecided = "undecided"

// linearize looks for an order of the operations that the model allows, within the tile's patience. illegal says what
// it means that there is none.
//
// Running out of time is reported like a broken promise: a check that decides nothing finds nothing.
func (t *Tile) linearize(m porcupine.Model, ops []porcupine.Operation, illegal string) {
	patience := cmp.Or(t.patience, linearizeTimeout)
	switch porcupine.CheckOperationsTimeout(m, ops, patience) {
	case porcupine.Illegal:
		t.breaks(t.FinalAt, "%d "+illegal, len(ops))
	case porcupine.Unknown:
		who := t.check
		t.check = undecided
		t.breaks(t.FinalAt, "%s: no verdict on %d operations within %v; check the history again with more time", who,
			len(ops), patience)
	}
}
