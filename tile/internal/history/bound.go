package history

import "github.com/tilefence/tilefence/stream"

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
