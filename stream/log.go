package stream

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// Cursor asks for a tile's entries after a sequence.
type Cursor struct {
	Tile  fence.TileID
	After fence.Seq // exclusive
	Limit int       // entries at most; 0 means DefaultLimit
}

// DefaultLimit is how many entries a read returns at most when its cursor does not say: a snapshot
// interval's worth.
const DefaultLimit = 128

// Chunk is the answer to a cursor.
type Chunk struct {
	Tile    fence.TileID
	Entries []fence.Entry // in sequence order
	// Owner is the owner hash read after the entries: its epoch is never below theirs unless the hash
	// has expired (then it is not Present).
	Owner fence.Owner
	// Poison is an entry that could not be decoded, if reading met one. Entries end before it.
	Poison *Poison
	// Err says why this tile could not be read although others could; the rest is then empty.
	Err error
}

// Poison is a stream entry that cannot be read. A consumer records it and goes on after Seq, unless that is above
// fence.FarSeq, where no tile comes: nothing can follow it, and it is damage.
type Poison struct {
	Tile   fence.TileID
	Seq    fence.Seq
	Epoch  fence.Epoch       // zero if unreadable
	Fields map[string]string // as stored
	Reason string
	Letter string // its name among the tile's dead letters; empty when it is not one
}

// Damage is the entry as a *fence.CorruptError, for those that cannot go on after it.
func (p *Poison) Damage() error {
	return &fence.CorruptError{Tile: p.Tile, What: "stream entry", At: fence.Position{Epoch: p.Epoch, Seq: p.Seq},
		Detail: p.Reason + "; see tilectl repair"}
}

// Log is the coordination store as a reader sees it, and the small writes a reader may make: its own
// watermark, the trim, and the dead letters. Implementations are safe for concurrent use.
// streamtest.Run states the contract as tests.
//
// Errors: a *fence.StoreError when the store cannot be asked; a *fence.CorruptError for a snapshot that
// fails its checksum or an owner hash that cannot be read.
type Log interface {
	// Read answers many cursors in as few round trips as the store allows (one per node), in the order
	// asked. It fails as a whole only when nothing could be read; a chunk's own damage is its Poison.
	Read(ctx context.Context, cursors []Cursor) ([]Chunk, error)

	// Snapshot reads and verifies a tile's snapshot. found is false when there is none.
	Snapshot(ctx context.Context, tile fence.TileID) (s fence.Snapshot, found bool, err error)

	// Last is the position at which a tile's history ends, read from the owner hash or, if that has
	// expired, from the stream; zero when there is neither.
	Last(ctx context.Context, tile fence.TileID) (fence.Position, error)

	// Mark moves watermarks and renews their leases, in as few round trips as the store allows; writes to one tile act
	// in the order given. The answer has an error per write, nil where it is in force; it is nil if all are. Errors: a
	// *ResyncError when entries after Seq are gone, each time until the consumer marks what is left; ErrTooManyMarks;
	// a *fence.ArgumentError, which only its own write suffers. Across the jump of a rebase a consumer may have to
	// resync although it had seen all that was removed: it has to start from the snapshot there in any case.
	Mark(ctx context.Context, writes []MarkWrite) []error

	// Marks reads all watermarks of tiles, in the order asked. It fails as a whole only when nothing could be read.
	Marks(ctx context.Context, tiles []fence.TileID) ([]TileMarks, error)

	// Trim removes the entries below the lowest of: the snapshot, every consumer's mark, and the oldest
	// entry that any consumer group was given within the lease and has not acknowledged; floor and removal are one
	// step. The entry at the floor stays, so that the last position can always be read. A mark not renewed for the
	// lease is dropped and reported, and so are those that the memory bound costs; with an error the answer is what was
	// done before it. A reply that gets lost takes that report with it, never the consumers' own: they learn it from
	// their next mark. Without a snapshot nothing is removed.
	Trim(ctx context.Context, r TrimRequest) (Trimmed, error)

	// DeadLetter keeps a poison entry where an operator finds it: at most 1,000 a tile, oldest dropped.
	DeadLetter(ctx context.Context, p Poison) error

	// DeadLetters lists a tile's dead letters, oldest first.
	DeadLetters(ctx context.Context, tile fence.TileID) ([]Poison, error)

	// RemoveDeadLetter removes the dead letter of that name, once it has been dealt with; found is false
	// when there is none, which is no error.
	RemoveDeadLetter(ctx context.Context, tile fence.TileID, letter string) (found bool, err error)
}

// FrameField is the name of a stream entry's one field: the frame.
const FrameField = "f"

// ParseEntry reads a stored entry, which must be the tile's and of this sequence. The error is a
// *fence.FormatError. It does not compare the chain with the content: fence.Entry.Verify does. For back ends.
func ParseEntry(tile fence.TileID, seq fence.Seq, frame []byte) (fence.Entry, error) {
	e, err := fence.DecodeEntry(frame)
	if err == nil && (e.Tile != tile || e.Seq != seq) {
		err = &fence.FormatError{What: "entry", Detail: fmt.Sprintf("it is tile %s, sequence %d", e.Tile, e.Seq)}
	}
	return e, err
}

// EntryOf reads an entry that was once set aside as unreadable: this version may understand what an older one did
// not, or an operator may have repaired the frame. It must be what it says, and hold a readable batch. Errors: a
// *fence.CorruptError, which says what is still wrong.
func EntryOf(p *Poison) (fence.Entry, error) {
	e, err := ParseEntry(p.Tile, p.Seq, []byte(p.Fields[FrameField]))
	if err == nil {
		if err = e.Verify(); err != nil {
			return fence.Entry{}, err
		}
		_, err = DecodeBatch(&e)
	}
	if err != nil {
		return fence.Entry{}, &fence.CorruptError{Tile: p.Tile, What: "dead letter",
			At: fence.Position{Epoch: p.Epoch, Seq: p.Seq}, Detail: err.Error()}
	}
	return e, nil
}
