package simulation

import (
	"context"
	"errors"
	"maps"
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
func (l *log) Mark(ctx context.Context, tile fence.TileID, c stream.Consumer, seq fence.Seq) error {
	_, _, err := l.at(ctx, "mark", tile, true, func(t *tileCopy) {
		t.marks[c] = stream.Mark{Seq: max(seq, t.marks[c].Seq), Moved: time.Now().UnixMilli()}
		t.version++
	})
	return err
}

// Marks implements stream.Log.
func (l *log) Marks(ctx context.Context, tile fence.TileID) (map[stream.Consumer]stream.Mark, error) {
	var found map[stream.Consumer]stream.Mark
	if _, _, err := l.at(ctx, "read marks", tile, false, func(t *tileCopy) { found = maps.Clone(t.marks) }); err != nil {
		return nil, unread(err)
	}
	return found, nil
}

// Trim implements stream.Log.
func (l *log) Trim(ctx context.Context, tile fence.TileID, lease time.Duration) (stream.Trimmed, error) {
	trimmed := &stream.Trimmed{}
	_, _, err := l.at(ctx, "trim", tile, true, func(t *tileCopy) {
		oldest := time.Now().Add(-lease).UnixMilli()
		if t.Snapshot == nil {
			return
		}
		trimmed.Floor = t.Snapshot.Seq
		for _, c := range stream.Consumers() {
			m, marked := t.marks[c]
			switch {
			case marked && m.Moved < oldest:
				delete(t.marks, c)
				trimmed.Expired = append(trimmed.Expired, c)
			case marked && m.Seq < trimmed.Floor:
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
