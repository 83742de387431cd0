package tile

import "github.com/tilefence/tilefence/stream"

// streamBound keeps a tile's stream within Config.MaxStreamBytes. What lies after the snapshot cannot be trimmed, so
// when no snapshot can be saved and the bound is reached, the tile commits no more events: one tile stalls, where a
// node without memory would stop all of its tiles.
type streamBound struct {
	limit    int64
	measured int64 // by the store, at the last trim; zero before this owner's first
	added    int64 // about what was committed since then, or found at the beginning
	stalled  bool  // the tile commits no events because the stream is full
}

// entryOverhead is about what the store takes for an entry beside its payload.
const entryOverhead = 160

// begin forgets what was counted; the entries after the snapshot are counted next.
func (b *streamBound) begin() { b.measured, b.added = 0, 0 }

func (b *streamBound) grow(payload int) { b.added += int64(payload) + entryOverhead }

// followed limits what was counted of another owner's entries, since that owner's trims are not seen here. It leaves
// enough for the first snapshot after a take-over to be due, with which the stream is measured.
func (b *streamBound) followed() { b.added = min(b.added, b.limit/8) }

// pressing reports whether the stream has grown by enough for a snapshot and a trim out of turn: an eighth of the
// bound, so that the alarm at three quarters comes before any consumer loses its hold.
func (b *streamBound) pressing() bool { return b.added >= b.limit/8 || b.full() }

func (b *streamBound) full() bool { return b.measured+b.added > b.limit }

// alarming is the alarm of a trim, while nothing is trimmed because there is no snapshot.
func (b *streamBound) alarming() bool {
	t := stream.Trimmed{Bytes: b.measured + b.added}
	return t.Alarming(b.limit)
}

// trimmed books what a trim has left that began when the stream had grown by added.
func (b *streamBound) trimmed(t *stream.Trimmed, added int64) {
	b.measured, b.added = t.Bytes, b.added-added
}
