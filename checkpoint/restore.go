package checkpoint

import (
	"context"

	"github.com/tilefence/tilefence/fence"
)

// Restore reads the snapshot from which an owner brings a tile back after the coordination store was
// lost, and verifies it once more. found is false for a tile that was never checkpointed.
//
// The owner then
//
//  1. claims the tile from the authority with fence.Claim.Floor set to the snapshot's Epoch, so that even
//     an authority restored from an old backup mints a higher one;
//  2. loads the snapshot's Blob as its state;
//  3. rebases with fence.Rebase.Seq set to the snapshot's Seq + fence.RebaseJump, because the lost stream
//     may have gone further than the checkpoint: clients have seen those sequences, and none may be used
//     twice for something else.
//
// From there on Checkpointers accept the tile's snapshots again, since both numbers have climbed. Every
// tick after the snapshot is lost: see the package comment.
//
// Errors are those of Store.Get. A *fence.CorruptError means that there is a checkpoint and it cannot be
// trusted: do not treat it as an empty tile.
func Restore(ctx context.Context, store Store, tile fence.TileID) (s fence.Snapshot, found bool, err error) {
	s, found, err = store.Get(ctx, tile)
	if err != nil || !found {
		return fence.Snapshot{}, false, err
	}
	if err := s.Verify(tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	return s, true, nil
}
