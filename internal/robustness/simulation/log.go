package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// log is one client's way to read the cluster: a stream.Log.
type log struct{ store }

var _ stream.Log = (*log)(nil)

// unread is the error of a read that failed: nothing was applied, since there was nothing to apply.
func unread(err error) error {
	var failed *fence.StoreError
	if errors.As(err, &failed) {
		failed.Outcome = fence.ErrNotApplied
	}
	return err
}

// Read implements stream.Log.
func (l *log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	chunks := make([]stream.Chunk, len(cursors))
	for i, cursor := range cursors {
		limit := cursor.Limit
		if limit <= 0 {
			limit = stream.DefaultLimit
		}
		c := &stream.Chunk{Tile: cursor.Tile, Owner: fence.Owner{Tile: cursor.Tile}}
		_, _, err := l.at(ctx, "read", cursor.Tile, false, func(t *tileCopy) {
			c.Entries = t.After(cursor.After, limit)
			if t.Owner.Present() {
				c.Owner = t.Owner
			}
		})
		if err != nil {
			return nil, unread(err)
		}
		chunks[i] = *c
	}
	return chunks, nil
}

// Snapshot implements stream.Log.
func (l *log) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	var found *fence.Snapshot
	_, _, err := l.at(ctx, "read snapshot", tile, false, func(t *tileCopy) { found = t.Snapshot })
	if err != nil {
		return fence.Snapshot{}, false, unread(err)
	}
	if found == nil {
		return fence.Snapshot{}, false, nil
	}
	return *found, true, nil
}

// Last implements stream.Log.
func (l *log) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	at := &fence.Position{}
	if _, _, err := l.at(ctx, "read position", tile, false, func(t *tileCopy) { *at = t.Last() }); err != nil {
		return fence.Position{}, unread(err)
	}
	return *at, nil
}

// Mark implements stream.Log.
func (l *log) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	errs := make([]error, len(writes))
	for i, w := range writes {
		_, _, errs[i] = l.at(ctx, "mark", w.Tile, true, func(t *tileCopy) {
			t.version++
			if w.Release {
				delete(t.marks, w.Consumer)
				return
			}
			seq := w.Seq
			if !w.Rewind {
				seq = max(seq, t.marks[w.Consumer].Seq)
			}
			t.marks[w.Consumer] = stream.Mark{Seq: seq, Moved: time.Now().UnixMilli()}
		})
	}
	return errs
}

// Marks implements stream.Log.
func (l *log) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	all := make([]stream.TileMarks, len(tiles))
	for i, tile := range tiles {
		if _, _, err := l.at(ctx, "read marks", tile, false, func(t *tileCopy) {
			all[i] = stream.TileMarks{Tile: tile, Marks: maps.Clone(t.marks)}
		}); err != nil {
			return nil, unread(err)
		}
	}
	return all, nil
}

// Trim implements stream.Log.
func (l *log) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	trimmed := &stream.Trimmed{}
	_, _, err := l.at(ctx, "trim", r.Tile, true, func(t *tileCopy) {
		oldest := time.Now().Add(-r.Lease).UnixMilli()
		if t.Snapshot == nil {
			return
		}
		trimmed.Floor = t.Snapshot.Seq
		for _, c := range slices.SortedFunc(maps.Keys(t.marks), stream.CompareConsumers) {
			m := t.marks[c]
			switch {
			case m.Moved < oldest:
				delete(t.marks, c)
				trimmed.Expired = append(trimmed.Expired, c)
			case m.Seq < trimmed.Floor:
				trimmed.Floor, trimmed.Held = m.Seq, c
			}
		}
		trimmed.Removed = t.TrimBelow(trimmed.Floor)
		t.version++
	})
	if err != nil {
		return stream.Trimmed{}, err
	}
	return *trimmed, nil
}

// DeadLetter implements stream.Log. Nothing here makes an entry unreadable.
func (l *log) DeadLetter(context.Context, stream.Poison) error { return nil }

// DeadLetters implements stream.Log.
func (l *log) DeadLetters(context.Context, fence.TileID) ([]stream.Poison, error) { return nil, nil }

// RemoveDeadLetter implements stream.Log.
func (l *log) RemoveDeadLetter(context.Context, fence.TileID, string) (bool, error) {
	return false, nil
}
