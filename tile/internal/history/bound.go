package history

import (
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Bound keeps a tile's stream within a number of bytes. What lies after the snapshot cannot be trimmed, so
// when no snapshot can be saved and the bound is reached, the tile commits no more events: one tile stalls, where a
// node without memory would stop all of its tiles.
type Bound struct {
	Limit    int64
	measured int64 // by the store, at the last trim; zero before this owner's first
	Added    int64 // about what was committed since then, or found at the beginning
}

// entryOverhead is about what the store takes for an entry beside its payload.
const entryOverhead = 160

// begin forgets what was counted; the entries after the snapshot are counted next.
func (b *Bound) begin() { b.measured, b.Added = 0, 0 }

// grow counts an entry.
func (b *Bound) grow(payload int) { b.Added += int64(payload) + entryOverhead }

// followed limits what was counted of another owner's entries, since that owner's trims are not seen here. It leaves
// enough for the first snapshot after a take-over to be due, with which the stream is measured.
func (b *Bound) followed() { b.Added = min(b.Added, b.Limit/8) }

// Pressing reports whether the stream has grown by enough for a snapshot and a trim out of turn: an eighth of the
// bound, so that the alarm at three quarters comes before any consumer loses its hold.
func (b *Bound) Pressing() bool { return b.Added >= b.Limit/8 || b.Full() }

// Full reports whether the stream has reached its bound.
func (b *Bound) Full() bool { return b.measured+b.Added > b.Limit }

// Alarming is the alarm of a trim, while nothing is trimmed because there is no snapshot.
func (b *Bound) Alarming() bool {
	t := stream.Trimmed{Bytes: b.measured + b.Added}
	return t.Alarming(b.Limit)
}

// Trimmed books what a trim has left that began when the stream had grown by added.
func (b *Bound) Trimmed(t *stream.Trimmed, added int64) {
	b.measured, b.Added = t.Bytes, b.Added-added
}

// Kept are the batches of this owner that may not be on every replica yet, oldest first. If a failover loses
// the end of the stream, the owner appends them again.
type Kept struct {
	Limit     int // bytes, with entryOverhead for each batch
	Batches   []fence.Commit
	Bytes     int
	forgetful bool // batches were forgotten since all were confirmed
}

func keptSize(c *fence.Commit) int { return len(c.Payload) + len(c.Private) + entryOverhead }

// Add keeps a committed batch. It returns the positions that it had to forget to stay within bounds, and whether they
// are the first since every batch was confirmed.
func (k *Kept) Add(c fence.Commit) (forgotten []fence.Position, first bool) {
	k.Batches = append(k.Batches, c)
	k.Bytes += keptSize(&c)
	for len(k.Batches) > 1 && k.Bytes > k.Limit {
		forgotten = append(forgotten, k.Batches[0].Next())
		k.drop(1)
	}
	first = len(forgotten) > 0 && !k.forgetful
	k.forgetful = k.forgetful || first
	return forgotten, first
}

// After lists the batches that follow a position of this owner's history; ok is false if the position is not one
// that it knows.
func (k *Kept) After(p fence.Position) (lost []fence.Commit, ok bool) {
	for i := range k.Batches {
		if k.Batches[i].Prev == p {
			return k.Batches[i:], true
		}
	}
	return nil, false
}

// Clear forgets everything: every replica has it, or the history was replaced.
func (k *Kept) Clear() {
	k.drop(len(k.Batches))
	k.Batches, k.forgetful = nil, false
}

func (k *Kept) drop(n int) {
	for i := range k.Batches[:n] {
		k.Bytes -= keptSize(&k.Batches[i])
		k.Batches[i].Payload, k.Batches[i].Private = nil, nil // the array outlives the slice
	}
	k.Batches = k.Batches[n:]
}
