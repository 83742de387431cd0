package tile

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/history"
)

// Decisions are what a tile's snapshot and stream say of its actions.
type Decisions struct {
	Outcomes map[string]stream.Outcome // by action ID: what the tile remembers, of the last Limits.RememberFor
	End      fence.Position            // of the history

	// Formed is when the owner formed the last batch, by its own clock. What comes later in the history was decided
	// later. Zero: it is not known, as of a stream that has nothing after its snapshot.
	Formed time.Time
}

// Outcomes reads what a tile has decided. It asks no tile server, so it is evidence for the outcome of an action whose
// answer was lost. An action that is not there may have been decided and forgotten since, or be decided yet.
//
// Errors: those of stream.Recover; a *fence.FormatError for a snapshot of another make.
func Outcomes(ctx context.Context, log stream.Log, id fence.TileID) (d Decisions, err error) {
	r, err := stream.Recover(ctx, log, id)
	if err != nil {
		return Decisions{}, err
	}
	if n := len(r.Entries); n > 0 {
		d.Formed = r.Entries[n-1].At
	}
	d.End = r.Position
	d.Outcomes, err = history.Outcomes(&r.Snapshot, r.Entries)
	return d, err
}
