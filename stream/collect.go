package stream

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// Collector removes tiles without players. The Logs of this module are Collectors, with a client that may expire a
// tile's keys. streamtest.Run states the contract as tests.
type Collector interface {
	// Expire gives a tile a time to live, if it is quiet and all of it is durable: it has no owner hash, and its
	// history ends at the position of a durable snapshot, with the store's own snapshot there. After that time stream,
	// snapshot, marks and dead letters go away in one step, by the store's clock; of several calls the earliest
	// counts. An owner that installs itself or rebases before then ends it.
	//
	// expires is false if the tile stays. Nothing is left in its place: for the next claimant the store has never
	// known the tile. So an owner needs the checkpoint to go on (tile.Config.Checkpoint), under a higher epoch, with
	// a jump of the sequence. A claimant that replayed the history before it went is refused with fence.ErrBehind and
	// begins again.
	//
	// Errors: a *fence.ArgumentError for tile or position zero, or a time below one second; a *fence.StoreError; a
	// *fence.CorruptError for an owner hash or a last entry that cannot be read.
	Expire(
		ctx context.Context, tile fence.TileID, durable fence.Position, after time.Duration,
	) (expires bool, err error)
}

// ValidateExpire checks what Collector.Expire takes: nil, or a *fence.ArgumentError. For implementations.
func ValidateExpire(tile fence.TileID, durable fence.Position, after time.Duration) error {
	switch {
	case durable.Epoch == 0 || durable.Epoch > fence.MaxNumber || durable.Seq == 0 || durable.Seq > fence.MaxNumber:
		return &fence.ArgumentError{Field: "durable", Value: durable, Want: "the position of a durable snapshot"}
	case after < time.Second:
		return &fence.ArgumentError{Field: "after", Value: after, Want: "at least one second"}
	}
	return guard.Tile(tile)
}
