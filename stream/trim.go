package stream

import (
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

	// Shown is the highest epoch that any consumer has told (MarkWrite.Shown), also one that has gone since. If it is
	// above the owner's, authority and store have forgotten an owner that watchers know, and they refuse this one.
	Shown fence.Epoch

	// What the stream holds now. Bytes is the store's own estimate.
	Entries int
	Bytes   int64
}

// Alarming reports whether the stream takes three quarters or more of a bound: the time to look what holds it.
func (t *Trimmed) Alarming(maxBytes int64) bool { return maxBytes > 0 && t.Bytes >= maxBytes/4*3 }
