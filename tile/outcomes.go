package tile

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/history"
)

// Outcomes reads from a tile's snapshot and stream which actions the tile has decided, and remembers: those of the last
// Limits.RememberFor. It asks no tile server, so it is evidence for what became of an action whose answer was lost. An
// action that is not there may have been decided and forgotten since, or be decided yet.
//
// at is where the history ends.
//
// Errors: those of stream.Recover; a *fence.FormatError for a snapshot of another make.
func Outcomes(
	ctx context.Context, log stream.Log, id fence.TileID,
) (outcomes map[string]stream.Outcome, at fence.Position, err error) {
	r, err := stream.Recover(ctx, log, id)
	if err != nil {
		return nil, fence.Position{}, err
	}
	outcomes, err = history.Outcomes(&r.Snapshot, r.Entries)
	return outcomes, r.Position, err
}
