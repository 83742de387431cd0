package stream

import (
	"context"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Consumer names who moves a watermark. The trim floor is the lowest of them and the snapshot.
type Consumer string

// The consumers of a tile's stream. Each owns one field of the tile's marks.
const (
	BridgeAcked   Consumer = "bridge"     // last entry published to fan-out
	BridgePending Consumer = "pending"    // entry before the oldest one read but not yet published
	RelayFloor    Consumer = "relay"      // position from which relays may still replay
	Checkpointed  Consumer = "checkpoint" // last snapshot sequence in the durable store

	// ConsumerGroup is the oldest pending entry of a Redis consumer group. The store tracks it by itself:
	// it can hold the trim floor, and cannot be marked.
	ConsumerGroup Consumer = "group"
)

// Consumers lists the consumers that mark. Watermarks that tie hold the trim floor in this order.
func Consumers() []Consumer {
	return []Consumer{BridgeAcked, BridgePending, RelayFloor, Checkpointed}
}

// CheckMark validates what Log.Mark takes: nil, or a *fence.ArgumentError. For implementations.
func CheckMark(c Consumer, seq fence.Seq) error {
	if !slices.Contains(Consumers(), c) {
		return &fence.ArgumentError{Field: "consumer", Value: c, Want: "bridge, pending, relay or checkpoint"}
	}
	if seq > fence.MaxNumber {
		return &fence.ArgumentError{Field: "seq", Value: seq, Want: "at most 2^53-1"}
	}
	return nil
}

// CheckLease validates what Log.Trim takes: nil, or a *fence.ArgumentError. For implementations.
func CheckLease(lease time.Duration) error {
	if lease < time.Second {
		return &fence.ArgumentError{Field: "lease", Value: lease, Want: "at least one second; consumers renew their marks every few"}
	}
	return nil
}

// Mark is a consumer's watermark.
type Mark struct {
	Seq   fence.Seq // the consumer needs no entry at or below it
	Moved int64     // store clock when it was last written, milliseconds since 1970
}

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

// Poison is a stream entry that cannot be read. A consumer records it and goes on after Seq.
type Poison struct {
	Tile   fence.TileID
	Seq    fence.Seq
	Epoch  fence.Epoch       // zero if unreadable
	Fields map[string]string // as stored
	Reason string
}

// Trimmed says what a trim did.
type Trimmed struct {
	Floor   fence.Seq  // entries below it were removed
	Removed int        // how many
	Held    Consumer   // the consumer that holds the floor; empty: the snapshot does
	Expired []Consumer // consumers whose lease ran out; they must resync
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

	// Mark moves a consumer's watermark. It never goes back: a lower sequence only renews the lease.
	Mark(ctx context.Context, tile fence.TileID, c Consumer, seq fence.Seq) error

	// Marks reads all watermarks of a tile.
	Marks(ctx context.Context, tile fence.TileID) (map[Consumer]Mark, error)

	// Trim removes the entries below the lowest of: the snapshot, every consumer's mark, and the oldest
	// pending entry of any consumer group. The entry at the floor stays, so that the last position can
	// always be read. A mark not renewed for lease is dropped and reported. Without a snapshot nothing is
	// removed.
	Trim(ctx context.Context, tile fence.TileID, lease time.Duration) (Trimmed, error)

	// DeadLetter keeps a poison entry where an operator finds it: at most 1,000 a tile, oldest dropped.
	DeadLetter(ctx context.Context, p Poison) error

	// DeadLetters lists a tile's dead letters, oldest first.
	DeadLetters(ctx context.Context, tile fence.TileID) ([]Poison, error)
}
