package simulation

import (
	"context"
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// log is one client's way to read the cluster: a stream.Log. Nothing is damaged here, so there are no dead letters.
type log struct {
	stream.Log
	store
}

// unread is the error of a read that failed: nothing was applied, since there was nothing to apply.
func unread(err error) error {
	var failed *fence.StoreError
	if errors.As(err, &failed) {
		failed.Outcome = fence.ErrNotApplied
	}
	return err
}

// look reads something of a tile's copy. The request may outlive the call, so it has a result of its own.
func look[T any](ctx context.Context, s *store, op string, tile fence.TileID, read func(*tileCopy) T) (T, error) {
	found := new(T)
	if _, _, err := s.at(ctx, op, tile, false, func(t *tileCopy) { *found = read(t) }); err != nil {
		var none T
		return none, unread(err)
	}
	return *found, nil
}

// Read implements stream.Log.
func (l *log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	chunks := make([]stream.Chunk, len(cursors))
	for i, c := range cursors {
		limit := c.Limit
		if limit <= 0 {
			limit = stream.DefaultLimit
		}
		var err error
		chunks[i], err = look(ctx, &l.store, "read", c.Tile, func(t *tileCopy) stream.Chunk {
			return stream.Chunk{Tile: c.Tile, Owner: t.owner(c.Tile), Entries: t.After(c.After, limit)}
		})
		if err != nil {
			return nil, err
		}
	}
	return chunks, nil
}

// Snapshot implements stream.Log.
func (l *log) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	s, err := look(ctx, &l.store, "read snapshot", tile, func(t *tileCopy) *fence.Snapshot { return t.State.Snapshot })
	if err != nil || s == nil {
		return fence.Snapshot{}, false, err
	}
	return *s, true, nil
}

// Last implements stream.Log.
func (l *log) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	return look(ctx, &l.store, "read position", tile, func(t *tileCopy) fence.Position { return t.Last() })
}

// Mark implements stream.Log.
func (l *log) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	errs, failed := make([]error, len(writes)), false
	for i := range writes {
		w, refusal := writes[i], new(error)
		_, _, err := l.at(ctx, "mark", w.Tile, true, func(t *tileCopy) {
			*refusal = t.marks.Mark(&w)
			t.version++
		})
		if err == nil {
			err = *refusal
		}
		errs[i], failed = err, failed || err != nil
	}
	if !failed {
		return nil
	}
	return errs
}

// Marks implements stream.Log.
func (l *log) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	all := make([]stream.TileMarks, len(tiles))
	for i, id := range tiles {
		var err error
		all[i], err = look(ctx, &l.store, "read marks", id,
			func(t *tileCopy) stream.TileMarks { return t.marks.Of(id) })
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Trim implements stream.Log.
func (l *log) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	trimmed := &stream.Trimmed{}
	_, _, err := l.at(ctx, "trim", r.Tile, true, func(t *tileCopy) {
		*trimmed = t.marks.Trim(&t.State, &r)
		t.version++
	})
	if err != nil {
		return stream.Trimmed{}, err
	}
	return *trimmed, nil
}
