package check

import (
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// IdempotentCommits is invariant 5: a batch that is presented again is committed once. No action is decided twice
// along the lineage, no payload is committed twice under one epoch, and no writer is refused because of its own
// batch: a commit that presents the head's position is answered that it is there.
//
// It is broken when the store does not recognise its own last entry: the retry is appended again, or refused
// as if another client had written it.
//
// An action is remembered for as long as the tile's RememberFor; a run must be shorter than that.
func IdempotentCommits(t *Tile) {
	actions := map[string]history.Position{}
	type content struct {
		epoch   uint64
		tick    uint64
		payload string
	}
	batches := map[content]history.Position{}
	for _, e := range t.Lineage {
		for _, a := range e.Actions {
			if first, twice := actions[a.ID]; twice {
				t.breaks(e.SeenAt, "action %s was decided at %s and again at %s", a.ID, first, e.Position)
			}
			actions[a.ID] = e.Position
		}
		if e.Payload == "" || e.Rebase {
			continue
		}
		c := content{uint64(e.Position.Epoch), uint64(e.Tick), e.Payload}
		if first, twice := batches[c]; twice {
			t.breaks(e.SeenAt, "one batch was committed at %s and again at %s", first, e.Position)
		}
		batches[c] = e.Position
	}
	for _, o := range t.Operations {
		if o.Kind == history.Commit && !o.Commit.Refresh() && o.Result.Outcome == history.Refused &&
			o.Result.Reason != "stale" && o.Result.Reason != "noowner" && o.Result.Current.Position == o.Commit.Next {
			t.breaks(o.Returned, "%s was refused as %s although it is the last entry", o.Commit.Next, o.Result.Reason)
		}
	}
}
