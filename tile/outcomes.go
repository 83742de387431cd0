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
// Errors: those of stream.Recover; a *fence.FormatError for a snapshot of another make.
func Outcomes(ctx context.Context, log stream.Log, id fence.TileID) (map[string]stream.Outcome, error) {
	r, err := stream.Recover(ctx, log, id)
	if err != nil {
		return nil, err
	}
	return history.Outcomes(&r.Snapshot, r.Entries)
}
