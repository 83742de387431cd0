package stream

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// Bounds of a stream's memory. See TrimRequest.MaxBytes.
const (
	DefaultMaxBytes = 16 << 20
	MinMaxBytes     = 1 << 20
)

// TrimRequest asks for a trim.
type TrimRequest struct {
	Tile fence.TileID

	// Lease is how long a consumer that does not mark holds the floor; at least a second. A trim that finds a mark
	// unwritten for half of it notes that, and the mark goes only if it is still unwritten half a lease after the
	// note: a store's clock that steps forward makes every mark look old, and takes no hold from consumers that renew
	// their marks within half a lease. What a consumer group has pending is judged by age alone.
	Lease time.Duration

	// MaxBytes is the memory a stream may take in the store: past it, consumers lose their hold as if their lease
	// had run out, the one furthest behind first, until the stream is within bounds or only the snapshot holds it.
	// An entry after the snapshot is never removed. At least MinMaxBytes; zero for no bound.
	MaxBytes int64
}

// Validate validates what Log.Trim takes: nil, or a *fence.ArgumentError. For implementations.
func (r *TrimRequest) Validate() error {
	switch {
	case r.Lease < time.Second:
		return &fence.ArgumentError{Field: "lease", Value: r.Lease,
			Want: "at least one second; consumers renew their marks every few"}
	case r.MaxBytes != 0 && r.MaxBytes < MinMaxBytes || r.MaxBytes > fence.MaxNumber:
		return &fence.ArgumentError{Field: "max bytes", Value: r.MaxBytes,
			Want: "at least 1048576, or zero for no bound"}
	}
	return guard.Tile(r.Tile)
}

// Trimmed says what a trim did.
type Trimmed struct {
	Floor   fence.Seq  // entries below it were removed
	Removed int        // how many
	Held    Consumer   // the consumer that holds the floor; empty: the snapshot does
	Expired []Consumer // consumers whose lease ran out; they must resync
	Evicted []Consumer // consumers that lost their hold to the memory bound; they must resync

	// Shown is the highest epoch that any consumer has reported (MarkWrite.Shown), also one that has gone since. If it
	// is above the owner's, authority and store have forgotten an owner that watchers know, and they refuse this one.
	Shown fence.Epoch

	// What the stream holds now. Bytes is the store's own estimate.
	Entries int
	Bytes   int64
}

// Alarming reports whether the stream takes three quarters or more of a bound: the time to look what holds it.
func (t *Trimmed) Alarming(maxBytes int64) bool { return maxBytes > 0 && t.Bytes >= maxBytes/4*3 }

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
