package tile

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Seams are what a TileProcessor stands on: the back ends, and the way to its successors. The first three are required.
type Seams struct {
	Authority fence.Authority
	Store     fence.Store
	Log       stream.Log

	// Checkpoint reads a tile's last durable snapshot; found is false if there is none. It is how a tile comes back
	// after the whole coordination store was lost; checkpoint.Restore is one. It is asked whenever the tile is booted
	// or taken over, beside the replay: for a tile that the coordination store knows nothing of, and for one whose
	// stream ends before the checkpoint, because a failover lost what the durable store has. Where the stream is whole,
	// a durable store that gives no answer within 2 s is not waited for; that is logged. Nil: a tile without history
	// starts empty, and the stream is believed. It may be called from several goroutines.
	Checkpoint func(ctx context.Context, tile fence.TileID) (s fence.Snapshot, found bool, err error)

	// Journal is where a WriteThrough tile's batches go before they are acknowledged, and a WriteBehind tile's after.
	// It must keep them in the durable store that Checkpoint reads. Other classes ignore it.
	Journal Journal

	// Handover asks the process at h.To to take the tile over, and returns when it serves there.
	// tilehttp.Client.Handover is one. Nil: Drain cannot name a successor.
	Handover func(ctx context.Context, h Handover) error

	// Present presents what has departed for another tile to the process that owns that one, and returns what its
	// TileProcessor.Present has answered. Each call is bounded to 5 s, and repeated after an error. It may be called
	// from several goroutines. Nil: nothing leaves the tile (Inputs.Room is 0).
	Present func(ctx context.Context, p Presentation) (Answer, error)

	// Rims reads what Sighted rules see of other tiles, for several processors together. tilehost.New makes one for
	// its tiles. Nil: this one reads by itself.
	Rims *Rims
}

// Journal keeps the batches of WriteThrough and WriteBehind tiles where they survive the coordination store, beside the
// checkpoints that Seams.Checkpoint reads. What a WriteThrough tile has acknowledged, and what a WriteBehind one has
// told other tiles, is always the latest checkpoint and the entries after it. The back ends of package checkpoint are
// Journals. Implementations are safe for concurrent use.
//
// The seal fences it: a successor seals the journal under its epoch before it reads what is in it, so what an
// owner that was superseded appends later is refused, and not acknowledged, even if a paused master has
// taken it.
//
// Seams.Checkpoint reads what Put writes, and sees every Put that was answered before it was called; Tail sees every
// such Append.
//
// Errors: a *fence.StoreError with ErrNotApplied or ErrUnknownOutcome, after which the same call may be made
// again; those named below.
type Journal interface {
	// Seal takes a tile's journal over for an epoch: from now on an Append under a lower epoch is refused. The
	// same epoch again succeeds. Lower than sealed: errors.Is(err, fence.ErrStale), and if it is a
	// *fence.RefusedError, Current.Epoch is the sealed one.
	Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error

	// Append stores an entry, under the sealed epoch, that follows the journal's last entry or base. The last entry
	// again succeeds. errors.Is(err, fence.ErrStale), as for Seal, if a higher epoch is sealed; fence.ErrForked if the
	// journal has another history of this epoch. fence.ErrNoOwner if the seal is lost, and fence.ErrBehind if entries
	// before this one are: the store was restored to an older state, and the owner lays a new base.
	Append(ctx context.Context, tile fence.TileID, e fence.Entry) error

	// Tail returns the entries after a sequence, in order, verified.
	Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error)

	// Base stores a snapshot in place of the latest checkpoint, seals the journal for the snapshot's epoch, and lets
	// the next entry follow the snapshot. The position of the latest checkpoint again succeeds. A snapshot whose
	// epoch or sequence is lower than that of the latest checkpoint, of the seal or of the last entry is refused.
	Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error
}
