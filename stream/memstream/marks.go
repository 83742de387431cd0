package memstream

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream"
)

// entryOverhead is about what an entry takes beside its payload.
const entryOverhead = 128

// Marks are one tile's watermarks. The zero value has none. It is for one goroutine at a time: a simulated store keeps
// one beside each memfence.State.
type Marks struct {
	of      map[stream.Consumer]stream.Mark
	trimmed fence.Seq
	shown   fence.Epoch
}

// Mark implements stream.Log.
func (l *Log) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	errs := make([]error, len(writes))
	failed := false
	for i := range writes {
		errs[i] = l.mark(ctx, &writes[i])
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return errs
}

func (l *Log) mark(ctx context.Context, w *stream.MarkWrite) error {
	if err := w.Validate(); err != nil {
		return err
	}
	if err := guard.Call(ctx, "mark", w.Tile); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetCollected(w.Tile)
	m := l.marks[w.Tile]
	if m == nil {
		m = &Marks{}
		l.marks[w.Tile] = m
	}
	return m.Mark(w)
}

// relays is how many relays have a mark.
func (m *Marks) relays() int {
	n := len(m.of)
	for _, c := range []stream.Consumer{stream.BridgeAcked, stream.BridgePending, stream.Checkpointed} {
		if _, known := m.of[c]; known {
			n--
		}
	}
	return n
}

// Mark is one write of stream.Log.Mark, which must be valid.
func (m *Marks) Mark(w *stream.MarkWrite) error {
	m.shown = max(m.shown, w.Shown)
	had, known := m.of[w.Consumer]
	if w.Release {
		delete(m.of, w.Consumer)
		return nil
	}
	if !known && w.Consumer.Kind() == stream.RelayFloor && m.relays() >= stream.MaxRelayMarks {
		return stream.ErrTooManyMarks
	}
	seq := w.Seq
	if !w.Rewind {
		seq = max(seq, had.Seq)
	}
	at := stream.Mark{Seq: seq, Moved: time.Now().UnixMilli()}
	switch {
	case w.Consumer != stream.BridgeAcked:
	case seq == w.Last.Seq && !w.Last.IsZero():
		at.Last = w.Last
	case seq == had.Last.Seq:
		at.Last = had.Last
	}
	if m.of == nil {
		m.of = map[stream.Consumer]stream.Mark{}
	}
	m.of[w.Consumer] = at
	if w.Seq+1 < m.trimmed {
		return &stream.ResyncError{Tile: w.Tile, Consumer: w.Consumer, Seq: w.Seq, Trimmed: m.trimmed}
	}
	return nil
}

// Marks implements stream.Log.
func (l *Log) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	for _, t := range tiles {
		if err := guard.Call(ctx, "read marks", t); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]stream.TileMarks, len(tiles))
	for i, t := range tiles {
		l.forgetCollected(t)
		all[i] = l.marksOf(t)
	}
	return all, nil
}

// marksOf copies a tile's marks. l.mu is held.
func (l *Log) marksOf(tile fence.TileID) stream.TileMarks {
	if m := l.marks[tile]; m != nil {
		return m.Of(tile)
	}
	return new(Marks).Of(tile)
}

// Of gives the marks as those of a tile.
func (m *Marks) Of(tile fence.TileID) stream.TileMarks {
	all := stream.TileMarks{Tile: tile, Marks: map[stream.Consumer]stream.Mark{}, Trimmed: m.trimmed, Shown: m.shown}
	maps.Copy(all.Marks, m.of)
	return all
}

// Clone is a copy that shares nothing with m.
func (m *Marks) Clone() Marks { return Marks{of: maps.Clone(m.of), trimmed: m.trimmed, shown: m.shown} }

// Trim implements stream.Log. There are no consumer groups in memory.
func (l *Log) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	if err := r.Validate(); err != nil {
		return stream.Trimmed{}, err
	}
	if err := guard.Call(ctx, "trim", r.Tile); err != nil {
		return stream.Trimmed{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetCollected(r.Tile)
	m := l.marks[r.Tile]
	if m == nil {
		m = &Marks{}
	}
	var t stream.Trimmed
	l.store.Update(r.Tile, func(s *memfence.State) { t = m.Trim(s, &r) })
	if t.Removed > 0 {
		l.marks[r.Tile] = m
	}
	return t, nil
}

// Trim is stream.Log.Trim of the tile that has these marks, and whose entries are in s. The request must be valid.
func (m *Marks) Trim(s *memfence.State, r *stream.TrimRequest) stream.Trimmed {
	t := stream.Trimmed{Shown: m.shown}
	now := time.Now()
	for _, c := range m.consumers() {
		mark := m.of[c]
		if lookAt(&mark, now.UnixMilli(), r.Lease.Milliseconds()) {
			m.of[c] = mark
			continue
		}
		delete(m.of, c)
		t.Expired = append(t.Expired, c)
	}
	m.trim(s, &t)
	for r.MaxBytes > 0 && t.Bytes > r.MaxBytes && t.Held != "" {
		delete(m.of, t.Held)
		t.Evicted = append(t.Evicted, t.Held)
		m.trim(s, &t)
	}
	return t
}

// lookAt reports whether a mark still holds the floor, and notes in it what the next trim has to know, as
// stream.TrimRequest.Lease says. A lease that began in the future, since the clock was stepped back, begins now.
func lookAt(m *stream.Mark, now, lease int64) bool {
	m.Moved = min(m.Moved, now)
	if m.Silent > now || m.Moved >= now-lease/2 {
		m.Silent = 0
	}
	switch {
	case m.Silent != 0 && m.Silent <= now-lease/2:
		return false
	case m.Silent == 0 && m.Moved < now-lease/2:
		m.Silent = now
	}
	return true
}

// trim removes what is below the floor and measures what is left.
func (m *Marks) trim(s *memfence.State, t *stream.Trimmed) {
	if s.Snapshot != nil {
		t.Floor, t.Held = s.Snapshot.Seq, ""
		for _, c := range m.consumers() {
			if mark := m.of[c]; mark.Seq < t.Floor {
				t.Floor, t.Held = mark.Seq, c
			}
		}
		if removed := s.TrimBelow(t.Floor); removed > 0 {
			t.Removed += removed
			m.trimmed = max(m.trimmed, t.Floor)
		}
	}
	t.Entries, t.Bytes = len(s.Entries), size(s)
}

// size is about how many bytes a tile's entries take.
func size(s *memfence.State) (bytes int64) {
	for i := range s.Entries {
		bytes += int64(len(s.Entries[i].Frame)) + entryOverhead
	}
	return bytes
}

// consumers lists those that have a mark, in the order in which ties hold the floor.
func (m *Marks) consumers() []stream.Consumer {
	return slices.SortedFunc(maps.Keys(m.of), stream.CompareConsumers)
}

var _ stream.Collector = (*Log)(nil)

// Expire implements stream.Collector.
func (l *Log) Expire(ctx context.Context, tiles []stream.Quiet, after time.Duration) []stream.Expiry {
	answers := make([]stream.Expiry, len(tiles))
	for i := range tiles {
		answers[i].Expires, answers[i].Err = l.expire(ctx, &tiles[i], after)
	}
	return answers
}

func (l *Log) expire(ctx context.Context, q *stream.Quiet, after time.Duration) (expires bool, err error) {
	if err := q.Validate(after); err != nil {
		return false, err
	}
	if err := guard.Call(ctx, "expire", q.Tile); err != nil {
		return false, err
	}
	l.store.Update(q.Tile, func(s *memfence.State) {
		if s.Owner.Present() || s.Last() != q.Durable || s.Snapshot == nil || s.Snapshot.Position != q.Durable {
			return
		}
		expires = true
		if at := time.Now().Add(after); s.Expires.IsZero() || at.Before(s.Expires) {
			s.Expires = at
		}
	})
	return expires, nil
}

// forgetCollected drops what the log keeps of a tile whose state has gone away since. l.mu is held.
func (l *Log) forgetCollected(tile fence.TileID) {
	l.store.Update(tile, func(s *memfence.State) {
		if s.Collected != l.collected[tile] {
			l.collected[tile] = s.Collected
			delete(l.marks, tile)
			delete(l.dead, tile)
		}
	})
}
