package checkpoint

import (
	"context"
	"iter"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// Store keeps the latest snapshot of each tile where it survives the coordination store. Implementations
// are safe for concurrent use, by any number of processes. checkpointtest.Run states the contract as
// tests.
//
// Errors common to all methods: a *fence.ArgumentError for a malformed call; a *fence.StoreError with
// fence.ErrNotApplied when nothing changed, or fence.ErrUnknownOutcome when the answer was lost, after
// which the same call may be made again.
type Store interface {
	// Put stores a snapshot if it supersedes what is stored (see Supersedes); the condition is part of the
	// write. An *OlderError carries what is stored otherwise. The snapshot that is stored already, at the
	// same position and with the same checksum, succeeds again. A blob that does not match its checksum is
	// a *fence.CorruptError, and nothing is written. Put does not keep the blob after it returns.
	Put(ctx context.Context, tile fence.TileID, s fence.Snapshot) error

	// Get reads a tile's snapshot and verifies it; found is false when there is none. Stored data that
	// fails its checksum or cannot be read is a *fence.CorruptError. The blob is the caller's to keep.
	Get(ctx context.Context, tile fence.TileID) (s fence.Snapshot, found bool, err error)

	// List goes through what is stored, in no particular order and without blobs. It is for tools: it may
	// read the whole store. It ends after the first error. A tile written meanwhile may or may not appear.
	List(ctx context.Context) iter.Seq2[Head, error]
}

// Backend is a durable store of tiles: their checkpoints, and the journals of tiles that write through.
type Backend interface {
	Store
	JournalStore
}

// Head is a stored snapshot without its blob.
type Head struct {
	Tile fence.TileID
	fence.Position
	Tick    fence.Tick
	Contact string    // owner that wrote the snapshot
	Sum     string    // checksum of the blob, see fence.Checksum
	Taken   time.Time // by the coordination store's clock
	Size    int       // bytes of the blob
}

// HeadOf returns the head of a snapshot.
func HeadOf(tile fence.TileID, s *fence.Snapshot) Head {
	return Head{Tile: tile, Position: s.Position, Tick: s.Tick, Contact: s.Contact, Sum: s.Sum, Taken: s.Taken,
		Size: len(s.Blob)}
}

// Supersedes reports whether a snapshot at p may replace one at stored: neither its epoch nor its
// sequence is lower, and one of them is higher.
//
// Comparing the epoch first and then the sequence would not do. The sequence is monotonic over a tile's
// whole life, so a higher epoch with a lower sequence is a history that has lost entries, after a
// failover that took both the owner and the stream's tail. What is stored is ahead of it, and a tile
// restored from the lower one would hand out sequences that clients have already seen. It is refused
// until its sequence has caught up.
//
// The order is partial, and what it refuses once it refuses for ever: whatever is stored later is at
// least as high in both.
func Supersedes(p, stored fence.Position) bool {
	return p.Epoch >= stored.Epoch && p.Seq >= stored.Seq && (p.Epoch > stored.Epoch || p.Seq > stored.Seq)
}

// Judge decides a Put against the head that is stored. write says whether the snapshot is to be written;
// without it, a nil error means that the same snapshot is stored already. Back ends use it where their
// database's own condition has refused a write and the answer needs a reason.
func (h *Head) Judge(s *fence.Snapshot) (write bool, err error) {
	switch {
	case Supersedes(s.Position, h.Position):
		return true, nil
	case s.Position == h.Position && s.Sum == h.Sum:
		return false, nil
	}
	return false, &OlderError{Tile: h.Tile, Stored: h.Position, Presented: s.Position}
}

// ValidatePut is what every Store does before a Put touches anything: nil, a *fence.ArgumentError, or a
// *fence.CorruptError for a blob that does not match its checksum.
func ValidatePut(tile fence.TileID, s *fence.Snapshot) error {
	if err := guard.Tile(tile); err != nil {
		return err
	}
	switch {
	case s.Epoch == 0 || s.Epoch > fence.MaxNumber || s.Seq == 0 || s.Seq > fence.MaxNumber:
		return &fence.ArgumentError{Field: "position", Value: s.Position,
			Want: "a committed position: epoch and sequence from 1 to 2^53-1"}
	case s.Tick > fence.MaxNumber:
		return &fence.ArgumentError{Field: "tick", Value: s.Tick, Want: "at most 2^53-1"}
	case len(s.Contact) > fence.MaxContact:
		return &fence.ArgumentError{Field: "contact", Value: s.Contact, Want: "at most 255 bytes"}
	case !s.Taken.IsZero() && (s.Taken.UnixMilli() < 0 || s.Taken.UnixMilli() > fence.MaxNumber):
		return &fence.ArgumentError{Field: "taken", Value: s.Taken, Want: "a time from 1970 on, or zero"}
	case len(s.Blob) > fence.MaxSnapshot:
		return &fence.ArgumentError{Field: "blob", Value: len(s.Blob), Want: "at most 16777216 bytes"}
	}
	return s.Verify(tile)
}

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
