package checkpoint

import (
	"context"
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// JournalStore keeps the batches of write-through tiles that no checkpoint covers yet, where they survive the
// coordination store. It is a tile.Journal, and more. A tile's owner seals the journal for its epoch when it takes
// the tile over, reads the tail, lays a base where it begins, and from then on appends every batch before it
// acknowledges it. What was ever acknowledged is then the checkpoint and the tail.
//
// The seal is to the journal what the owner hash is to the stream: an Append checks it in the step that
// writes, so once Seal has returned, no owner with a lower epoch is answered that anything was kept, and what
// was kept before is in the tail. The same step checks that the entry follows the journal's end, its last entry or
// base. So a store that was restored to an older state, even of the same epoch, refuses what its living owner
// appends next, and the owner lays a new base.
//
// Implementations are safe for concurrent use, by any number of processes. checkpointtest.RunJournal
// states the contract as tests.
//
// Errors common to all methods: a *fence.ArgumentError for a malformed call; a *fence.StoreError with
// fence.ErrNotApplied when nothing changed, or fence.ErrUnknownOutcome when the answer was lost, after
// which the same call may be made again. A refusal is a *fence.RefusedError, and nothing was written: its Reason is
// named below, Current.Epoch is the epoch the journal is sealed for, and Current.Position the journal's end.
type JournalStore interface {
	// Seal takes a tile's journal over for an epoch: from now on an Append under a lower epoch is refused. The
	// same epoch again succeeds; an epoch lower than the one sealed is fence.ErrStale.
	Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error

	// Base stores a snapshot as Store.Put does, seals the journal for the snapshot's epoch, and makes the snapshot's
	// position the journal's end. A checkpoint that is stored at this position already stays, whatever its
	// bytes. fence.ErrStale as for Seal; fence.ErrRegress if the journal's end is of the same epoch and a higher
	// sequence; an *OlderError as for Put. When the journal refuses, the snapshot may be stored all the same.
	Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error

	// Append stores an entry and makes it the journal's end. The entry that is the end already succeeds again and
	// changes nothing. What is stored at the entry's sequence otherwise, under a lower epoch, is replaced. An entry
	// that fails fence.Entry.Verify is a *fence.CorruptError. Append does not keep the payload after it returns.
	//
	// Refusals: fence.ErrStale if the journal is sealed for a higher epoch than the entry's, and fence.ErrNoOwner if
	// for a lower one, or for none; fence.ErrBehind if the journal ends before e.Prev: what came between is not in
	// it; fence.ErrForked if it ends elsewhere.
	Append(ctx context.Context, tile fence.TileID, e fence.Entry) error

	// Tail returns the entries after a sequence, in sequence order, each verified. It sees every Append that
	// was answered before Tail was called, and after a Seal every one that will ever be answered to a lower
	// epoch. Damage is a *fence.CorruptError, and no entry is returned: what follows cannot be built on.
	Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error)

	// Truncate removes the entries at or below a sequence, which a checkpoint covers. Seal and end stay.
	Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error

	// JournalHead describes what the journal holds of a tile, without payloads. It is for tools: it may read
	// the tile's whole journal. A tile that was never sealed gives a head with nothing in it.
	JournalHead(ctx context.Context, tile fence.TileID) (JournalHead, error)
}

// JournalHead is what a journal holds of a tile.
type JournalHead struct {
	Tile fence.TileID
	JournalEnd
	Entries int
	Bytes   int            // of their frames
	First   fence.Position // lowest sequence; zero without entries
	Last    fence.Position // highest sequence; zero without entries
}

// Add counts an entry; entries are added in sequence order. For implementations.
func (h *JournalHead) Add(at fence.Position, frame int) {
	if h.Entries == 0 {
		h.First = at
	}
	h.Last = at
	h.Entries++
	h.Bytes += frame
}

// JournalEnd is what a journal decides by. Back ends have its rules in the conditions of their database, and use
// its methods where such a condition has refused a write and the answer needs a reason.
type JournalEnd struct {
	Sealed fence.Epoch    // the epoch that may append; zero: never sealed
	End    fence.Position // what the next entry must follow: the last entry or base; zero without any
}

// Seal decides a Seal: nil, or the refusal.
func (j JournalEnd) Seal(tile fence.TileID, epoch fence.Epoch) error {
	if epoch < j.Sealed {
		return j.refuse(tile, epoch, fence.ErrStale)
	}
	return nil
}

// Base decides a Base at a position: nil, or the refusal.
func (j JournalEnd) Base(tile fence.TileID, at fence.Position) error {
	if at.Epoch == j.End.Epoch && at.Seq < j.End.Seq && at.Epoch == j.Sealed {
		return j.refuse(tile, at.Epoch, fence.ErrRegress)
	}
	return j.Seal(tile, at.Epoch)
}

// Append decides an Append. write says whether the entry is to be written; without it, a nil error means that it is
// the journal's end already.
func (j JournalEnd) Append(tile fence.TileID, e *fence.Entry) (write bool, err error) {
	switch {
	case e.Epoch < j.Sealed:
		return false, j.refuse(tile, e.Epoch, fence.ErrStale)
	case e.Epoch > j.Sealed:
		return false, j.refuse(tile, e.Epoch, fence.ErrNoOwner)
	case j.End == e.Position:
		return false, nil
	case j.End == e.Prev:
		return true, nil
	case j.End.Seq < e.Prev.Seq:
		return false, j.refuse(tile, e.Epoch, fence.ErrBehind)
	}
	return false, j.refuse(tile, e.Epoch, fence.ErrForked)
}

func (j JournalEnd) refuse(tile fence.TileID, epoch fence.Epoch, reason error) error {
	return &fence.RefusedError{Reason: reason, Tile: tile, Epoch: epoch,
		Current: fence.Owner{Tile: tile, Epoch: j.Sealed, Position: j.End}}
}

// PutBase is the first half of a Base: it puts the snapshot, unless a checkpoint is stored at its position. That one
// is of the same history, and as good, even where a game writes one state in different bytes.
func PutBase(ctx context.Context, store Store, tile fence.TileID, s fence.Snapshot) error {
	err := store.Put(ctx, tile, s)
	if older, ok := errors.AsType[*OlderError](err); ok && older.Stored == s.Position {
		return nil
	}
	return err
}

// ValidateSeal is what every Journal does before a Seal touches anything: nil, or a *fence.ArgumentError.
func ValidateSeal(tile fence.TileID, epoch fence.Epoch) error {
	if epoch == 0 || epoch > fence.MaxNumber {
		return &fence.ArgumentError{Field: "epoch", Value: epoch, Want: "an epoch from 1 to 2^53-1"}
	}
	return guard.Tile(tile)
}

// ValidateEntry is what every Journal does before an Append touches anything: nil, a *fence.ArgumentError, or a
// *fence.CorruptError for an entry whose chain does not follow from its content.
func ValidateEntry(tile fence.TileID, e *fence.Entry) error {
	if err := guard.Tile(tile); err != nil {
		return err
	}
	d, err := fence.DecodeEntry(e.Frame)
	switch {
	case err != nil:
		return &fence.ArgumentError{Field: "entry", Value: e.Position,
			Want: "an encoded entry, as fence.Commit.Entry gives it: " + err.Error()}
	case d.Tile != tile || d.Position != e.Position:
		return &fence.ArgumentError{Field: "entry", Value: e.Position, Want: "an entry of the tile, with its own frame"}
	}
	if err := d.Verify(); err != nil {
		return err
	}
	if d.Prev != e.Prev {
		return &fence.ArgumentError{Field: "prev", Value: e.Prev, Want: "what its frame follows, " + d.Prev.String()}
	}
	return nil
}

// ParseEntry reads a stored frame, which must be the entry at a position. Errors: a *fence.CorruptError. For back ends.
func ParseEntry(tile fence.TileID, at fence.Position, frame []byte) (fence.Entry, error) {
	e, err := fence.DecodeEntry(frame)
	if err == nil && (e.Tile != tile || e.Position != at) {
		err = &fence.FormatError{What: "entry", Detail: "it is tile " + e.Tile.String() + ", " + e.String()}
	}
	if err != nil {
		return fence.Entry{}, &fence.CorruptError{Tile: tile, What: "journal entry", At: at, Detail: err.Error()}
	}
	return e, e.Verify()
}

// ValidateJournalSeq is what every Journal does before a Tail or a Truncate touches anything: nil, or a
// *fence.ArgumentError.
func ValidateJournalSeq(tile fence.TileID, seq fence.Seq) error {
	if seq > fence.MaxNumber {
		return &fence.ArgumentError{Field: "seq", Value: seq, Want: "at most 2^53-1"}
	}
	return guard.Tile(tile)
}
