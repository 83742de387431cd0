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
	// Expire gives each of the tiles a time to live that is quiet and durable as a whole: it has no owner hash, and its
	// history ends at the position of a durable snapshot, with the store's own snapshot there. After that time stream,
	// snapshot, marks and dead letters go away in one step, by the store's clock; of several calls the earliest
	// counts. An owner that installs itself or rebases before then ends it.
	//
	// The answers are in the order of the tiles, and each tile's is its own: a server that does not answer takes
	// nothing from the tiles of others. Nothing is left in the place of a tile that went: for the next claimant the
	// store has never known the tile. So an owner needs the checkpoint to go on (tile.Seams.Checkpoint), under a
	// higher epoch, with a jump of the sequence. A claimant that replayed the history before it went is refused with
	// fence.ErrBehind and begins again.
	Expire(ctx context.Context, tiles []Quiet, after time.Duration) []Expiry
}

// Quiet is a tile that may go from the coordination store, and the position of its durable snapshot.
type Quiet struct {
	Tile    fence.TileID
	Durable fence.Position
}

// Expiry is a Collector's answer for one tile.
type Expiry struct {
	Expires bool // false: the tile stays

	// Err is a *fence.ArgumentError for tile or position zero, or a time below one second; a *fence.StoreError; or a
	// *fence.CorruptError for an owner hash or a last entry that cannot be read.
	Err error
}

// Validate checks what Collector.Expire takes: nil, or a *fence.ArgumentError. For implementations.
func (q *Quiet) Validate(after time.Duration) error {
	at := q.Durable
	switch {
	case at.Epoch == 0 || at.Epoch > fence.MaxNumber || at.Seq == 0 || at.Seq > fence.MaxNumber:
		return &fence.ArgumentError{Field: "durable", Value: at, Want: "the position of a durable snapshot"}
	case after < time.Second:
		return &fence.ArgumentError{Field: "after", Value: after, Want: "at least one second"}
	}
	return guard.Tile(q.Tile)
}
