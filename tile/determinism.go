package tile

import (
	"bytes"
	"time"

	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/stream"
)

// What to look for where Resolve changes the state, or seems to.
const (
	impurityCauses = "a field of the rules that Resolve assigns; a slice or map of the state that it sorts, appends " +
		"to or deletes from; a pointer into the state that it writes through"
	unsteadyCauses = "a range over a map without sorted keys, time or chance in Snapshot"
)

// impureEvery is how often it is logged that Resolve changes the state.
const impureEvery = time.Minute

// resolver asks the rules for the events of ticks. With Config.CheckResolve it compares the state before and after.
type resolver struct {
	*base
	logged time.Time // when it was last logged that Resolve changes the state
}

func (a *resolver) resolve(in *Inputs, b *stream.Batch, d *Outputs) error {
	if !a.cfg.CheckResolve {
		return a.guard.resolve(a.history.Tick, in, b, d)
	}
	before, unreadable := a.guard.Snapshot()
	before = bytes.Clone(before)
	err := a.guard.resolve(a.history.Tick, in, b, d)
	if after, failed := a.guard.Snapshot(); unreadable == nil && failed == nil && !bytes.Equal(before, after) {
		a.changed(ImpurityInfo{Tile: a.tile, Tick: a.history.Tick, Intents: in.Intents, Before: before,
			After: bytes.Clone(after), Offset: firstDifference(before, after)})
	}
	return err
}

// changed reports that Resolve has changed the state.
func (a *resolver) changed(i ImpurityInfo) {
	for range 5 { // two orders of a map may be the same
		again, err := a.guard.Snapshot()
		i.Unsteady = i.Unsteady || err == nil && !bytes.Equal(again, i.After)
	}
	what, causes := "Resolve has changed the state: followers, and the next owner, will have another", impurityCauses
	if i.Unsteady {
		what, causes = "Snapshot gives other bytes each time: equal states must give equal bytes", unsteadyCauses
	}
	if now := time.Now(); now.Sub(a.logged) >= impureEvery {
		a.logged = now
		a.cfg.Logger.Error(what, "tick", i.Tick, "intents", len(i.Intents), "offset", i.Offset, "bytes", len(i.Before),
			"bytes_after", len(i.After), "look_for", causes)
	}
	hook.Call(a.cfg.Hooks.Impure, i)
}
