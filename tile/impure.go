package tile

import (
	"bytes"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// ImpurityInfo is a Resolve after which Snapshot gives other bytes than before.
type ImpurityInfo struct {
	Tile    fence.TileID
	Tick    fence.Tick
	Intents []Intent // that Resolve was given

	Before, After []byte // what Snapshot gave
	Offset        int    // of the first byte that differs

	// Unsteady says that Snapshot, called again, gives yet other bytes: the fault is there, and Resolve may have none.
	Unsteady bool
}

// What to look for where Resolve changes the state, or seems to.
const (
	impurityCauses = "a field of the rules that Resolve assigns; a slice or map of the state that it sorts, appends " +
		"to or deletes from; a pointer into the state that it writes through"
	unsteadyCauses = "a range over a map without sorted keys, time or chance in Snapshot"
)

// impureEvery is how often it is logged that Resolve changes the state.
const impureEvery = time.Minute

// askRules asks the rules for the events of a tick. With Config.CheckResolve it compares the state before and after.
func (o *tileOwner) askRules(intents []Intent) (stream.Batch, []stream.Outcome, error) {
	if !o.cfg.CheckResolve {
		return o.guard.resolve(o.history.Tick, intents)
	}
	before, unreadable := o.guard.Snapshot()
	before = bytes.Clone(before)
	batch, outcomes, err := o.guard.resolve(o.history.Tick, intents)
	if after, failed := o.guard.Snapshot(); unreadable == nil && failed == nil && !bytes.Equal(before, after) {
		o.changed(ImpurityInfo{Tile: o.tile, Tick: o.history.Tick, Intents: intents, Before: before,
			After: bytes.Clone(after), Offset: firstDifference(before, after)})
	}
	return batch, outcomes, err
}

// changed reports that Resolve has changed the state.
func (o *tileOwner) changed(i ImpurityInfo) {
	for range 5 { // two orders of a map may be the same
		again, err := o.guard.Snapshot()
		i.Unsteady = i.Unsteady || err == nil && !bytes.Equal(again, i.After)
	}
	what, causes := "Resolve has changed the state: followers, and the next owner, will have another", impurityCauses
	if i.Unsteady {
		what, causes = "Snapshot gives other bytes each time: equal states must give equal bytes", unsteadyCauses
	}
	if now := time.Now(); now.Sub(o.impure) >= impureEvery {
		o.impure = now
		o.cfg.Logger.Error(what, "tick", i.Tick, "intents", len(i.Intents), "offset", i.Offset, "bytes", len(i.Before),
			"bytes_after", len(i.After), "look_for", causes)
	}
	o.cfg.Hooks.Impure(i)
}
