package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// Journal keeps the batches of write-through tiles that no checkpoint covers yet, where they survive the
// coordination store. A tile's owner seals the journal for its epoch when it takes the tile over, reads the
// tail, and from then on appends every batch before it acknowledges it. What was ever acknowledged is then
// the checkpoint and the tail.
//
// The seal is to the journal what the owner hash is to the stream: an Append checks it in the step that
// writes, so once Seal has returned, no owner with a lower epoch is told that anything was kept, and what
// was kept before is in the tail.
//
// Implementations are safe for concurrent use, by any number of processes. checkpointtest.RunJournal
// states the contract as tests.
//
// Errors common to all methods: a *fence.ArgumentError for a malformed call; a *fence.StoreError with
// fence.ErrNotApplied when nothing changed, or fence.ErrUnknownOutcome when the answer was lost, after
// which the same call may be made again.
type Journal interface {
	// Seal takes a tile's journal over for an epoch: from now on an Append under a lower epoch is refused. The
	// same epoch again succeeds; an epoch lower than the one sealed is a *SealedError.
	Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error

	// Append stores an entry. Its epoch must be the one the journal is sealed for; otherwise it is a
	// *SealedError, whatever is stored. The same position again succeeds and changes nothing. An entry of a
	// lower epoch at the same sequence is replaced; another entry of the same epoch there is a *ForkedError. An
	// entry that fails fence.Entry.Verify is a *fence.CorruptError, and nothing is written. Append does not keep
	// the payload after it returns.
	Append(ctx context.Context, tile fence.TileID, e fence.Entry) error

	// Tail returns the entries after a sequence, in sequence order, each verified. It sees every Append that
	// was answered before Tail was called, and after a Seal every one that will ever be answered to a lower
	// epoch. Damage is a *fence.CorruptError, and no entry is returned: what follows cannot be built on.
	Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error)

	// Truncate removes the entries at or below a sequence, which a checkpoint covers. The seal stays.
	Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error

	// JournalHead describes what the journal holds of a tile, without payloads. It is for tools: it may read
	// the tile's whole journal. A tile that was never sealed gives a head with nothing in it.
	JournalHead(ctx context.Context, tile fence.TileID) (JournalHead, error)
}

// JournalHead is what a journal holds of a tile.
type JournalHead struct {
	Tile    fence.TileID
	Sealed  fence.Epoch // the epoch that may append; zero: never sealed
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

// ErrSealed means that a journal is sealed for another epoch; a *SealedError says for which. Nothing was
// written.
var ErrSealed = errors.New("the journal is sealed for another epoch")

// SealedError is a Seal or an Append that was refused because of the seal.
type SealedError struct {
	Tile      fence.TileID
	Sealed    fence.Epoch // what the journal is sealed for; zero: it never was
	Presented fence.Epoch
}

func (e *SealedError) Error() string {
	return fmt.Sprintf("tile %s: epoch %d: %v: %d", e.Tile, e.Presented, ErrSealed, e.Sealed)
}

// Is matches ErrSealed; fence.ErrStale if somebody with a higher epoch has taken the journal over; and
// fence.ErrNoOwner if nobody has: there was no Seal before this Append, or it is lost with the state that the store
// was put back from.
func (e *SealedError) Is(target error) bool {
	switch target {
	case fence.ErrStale:
		return e.Sealed > e.Presented
	case fence.ErrNoOwner:
		return e.Sealed < e.Presented
	}
	return target == ErrSealed
}

// As gives a stale one as a *fence.RefusedError whose Current.Epoch is the sealed epoch, for callers that know
// of refusals only from package fence.
func (e *SealedError) As(target any) bool {
	refused, ok := target.(**fence.RefusedError)
	if !ok || e.Sealed <= e.Presented {
		return false
	}
	*refused = &fence.RefusedError{Reason: fence.ErrStale, Tile: e.Tile, Epoch: e.Presented,
		Current: fence.Owner{Tile: e.Tile, Epoch: e.Sealed}}
	return true
}

// ForkedError is an Append at a sequence where the same epoch has stored another entry. Nothing was written.
type ForkedError struct {
	Tile      fence.TileID
	Stored    fence.Position
	Presented fence.Position
}

func (e *ForkedError) Error() string {
	return fmt.Sprintf("tile %s: journal entry at %s refused: %v (stored: %s)", e.Tile, e.Presented, fence.ErrForked, e.Stored)
}

// Is matches fence.ErrForked.
func (e *ForkedError) Is(target error) bool { return target == fence.ErrForked }

// JudgeAppend decides an Append against the epoch the journal is sealed for and the position stored at the
// entry's sequence, zero if there is none. write says whether the entry is to be written; without it, a nil
// error means that the same entry is stored already. Back ends use it where their database's own condition
// has refused a write and the answer needs a reason.
func JudgeAppend(tile fence.TileID, e *fence.Entry, sealed fence.Epoch, stored fence.Position) (write bool, err error) {
	switch {
	case e.Epoch != sealed:
		return false, &SealedError{Tile: tile, Sealed: sealed, Presented: e.Epoch}
	case stored.IsZero() || stored.Epoch < e.Epoch:
		return true, nil
	case stored == e.Position:
		return false, nil
	}
	return false, &ForkedError{Tile: tile, Stored: stored, Presented: e.Position}
}

// CheckSeal is what every Journal does before a Seal touches anything: nil, or a *fence.ArgumentError.
func CheckSeal(tile fence.TileID, epoch fence.Epoch) error {
	if epoch == 0 || epoch > fence.MaxNumber {
		return &fence.ArgumentError{Field: "epoch", Value: epoch, Want: "an epoch from 1 to 2^53-1"}
	}
	return CheckTile(tile)
}

// CheckEntry is what every Journal does before an Append touches anything: nil, a *fence.ArgumentError, or a
// *fence.CorruptError for an entry whose chain does not follow from its content.
func CheckEntry(tile fence.TileID, e *fence.Entry) error {
	if err := CheckTile(tile); err != nil {
		return err
	}
	d, err := fence.DecodeEntry(e.Frame)
	switch {
	case err != nil:
		return &fence.ArgumentError{Field: "entry", Value: e.Position, Want: "an encoded entry, as fence.Commit.Entry gives it: " + err.Error()}
	case d.Tile != tile || d.Position != e.Position:
		return &fence.ArgumentError{Field: "entry", Value: e.Position, Want: "an entry of the tile, with its own frame"}
	}
	return d.Verify()
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

// CheckJournalSeq is what every Journal does before a Tail or a Truncate touches anything: nil, or a
// *fence.ArgumentError.
func CheckJournalSeq(tile fence.TileID, seq fence.Seq) error {
	if seq > fence.MaxNumber {
		return &fence.ArgumentError{Field: "seq", Value: seq, Want: "at most 2^53-1"}
	}
	return CheckTile(tile)
}
