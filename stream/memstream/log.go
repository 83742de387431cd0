// Package memstream reads what memfence committed: stream.Log in one process, for tests, local
// development and the one-command example.
//
//	store := memfence.New()
//	log := memstream.New(store)
//
// Make one Log a Store: watermarks and dead letters live in the Log. It is safe for concurrent use.
package memstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
)

// maxDeadLetters is how many dead letters a tile keeps.
const maxDeadLetters = 1000

// Log is a stream.Log over a memfence.Store.
type Log struct {
	store *memfence.Store

	mu    sync.Mutex // taken before a tile's own lock, never after
	marks map[fence.TileID]map[stream.Consumer]stream.Mark
	dead  map[fence.TileID][]stream.Poison
}

var _ stream.Log = (*Log)(nil)

// New returns a Log that reads store.
func New(store *memfence.Store) *Log {
	return &Log{store: store, marks: map[fence.TileID]map[stream.Consumer]stream.Mark{}, dead: map[fence.TileID][]stream.Poison{}}
}

// Read implements stream.Log.
func (l *Log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	for _, c := range cursors {
		if err := check(ctx, "read", c.Tile); err != nil {
			return nil, err
		}
	}
	chunks := make([]stream.Chunk, len(cursors))
	for i, c := range cursors {
		limit := c.Limit
		if limit <= 0 {
			limit = stream.DefaultLimit
		}
		chunks[i] = stream.Chunk{Tile: c.Tile, Owner: fence.Owner{Tile: c.Tile}}
		l.store.Update(c.Tile, func(s *memfence.State) {
			chunks[i].Entries = s.After(c.After, limit)
			for j := range chunks[i].Entries {
				e := &chunks[i].Entries[j]
				e.Payload = slices.Clone(e.Payload)
			}
			if s.Owner.Present() {
				chunks[i].Owner = s.Owner
			}
		})
	}
	return chunks, nil
}

// Snapshot implements stream.Log.
func (l *Log) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	if err := check(ctx, "read snapshot", tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	var snap fence.Snapshot
	var found bool
	l.store.Update(tile, func(s *memfence.State) {
		if s.Snapshot != nil {
			snap, found = *s.Snapshot, true
		}
	})
	if !found {
		return fence.Snapshot{}, false, nil
	}
	if err := snap.Verify(tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	snap.Blob = slices.Clone(snap.Blob)
	return snap, true, nil
}

// Last implements stream.Log.
func (l *Log) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	if err := check(ctx, "read position", tile); err != nil {
		return fence.Position{}, err
	}
	var last fence.Position
	l.store.Update(tile, func(s *memfence.State) { last = s.Last() })
	return last, nil
}

// Mark implements stream.Log.
func (l *Log) Mark(ctx context.Context, tile fence.TileID, c stream.Consumer, seq fence.Seq) error {
	if err := check(ctx, "mark", tile); err != nil {
		return err
	}
	if err := stream.CheckMark(c, seq); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.marks[tile]
	if m == nil {
		m = map[stream.Consumer]stream.Mark{}
		l.marks[tile] = m
	}
	m[c] = stream.Mark{Seq: max(seq, m[c].Seq), Moved: time.Now().UnixMilli()}
	return nil
}

// Marks implements stream.Log.
func (l *Log) Marks(ctx context.Context, tile fence.TileID) (map[stream.Consumer]stream.Mark, error) {
	if err := check(ctx, "read marks", tile); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := maps.Clone(l.marks[tile])
	if m == nil {
		m = map[stream.Consumer]stream.Mark{}
	}
	return m, nil
}

// Trim implements stream.Log. There are no consumer groups in memory.
func (l *Log) Trim(ctx context.Context, tile fence.TileID, lease time.Duration) (stream.Trimmed, error) {
	if err := check(ctx, "trim", tile); err != nil {
		return stream.Trimmed{}, err
	}
	if err := stream.CheckLease(lease); err != nil {
		return stream.Trimmed{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var t stream.Trimmed
	oldest := time.Now().Add(-lease).UnixMilli()
	for _, c := range stream.Consumers() {
		if m, ok := l.marks[tile][c]; ok && m.Moved < oldest {
			delete(l.marks[tile], c)
			t.Expired = append(t.Expired, c)
		}
	}
	l.store.Update(tile, func(s *memfence.State) {
		if s.Snapshot == nil {
			return
		}
		t.Floor = s.Snapshot.Seq
		for _, c := range stream.Consumers() {
			if m, ok := l.marks[tile][c]; ok && m.Seq < t.Floor {
				t.Floor, t.Held = m.Seq, c
			}
		}
		t.Removed = s.TrimBelow(t.Floor)
	})
	return t, nil
}

// DeadLetter implements stream.Log.
func (l *Log) DeadLetter(ctx context.Context, p stream.Poison) error {
	if err := check(ctx, "dead letter", p.Tile); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Fields = maps.Clone(p.Fields)
	d := append(l.dead[p.Tile], p)
	l.dead[p.Tile] = d[max(0, len(d)-maxDeadLetters):]
	return nil
}

// DeadLetters implements stream.Log.
func (l *Log) DeadLetters(ctx context.Context, tile fence.TileID) ([]stream.Poison, error) {
	if err := check(ctx, "read dead letters", tile); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	letters := slices.Clone(l.dead[tile])
	for i := range letters {
		letters[i].Fields = maps.Clone(letters[i].Fields)
	}
	return letters, nil
}

func check(ctx context.Context, op string, tile fence.TileID) error {
	if tile == 0 {
		return &fence.ArgumentError{Field: "tile", Value: tile, Want: "an H3 index, not zero"}
	}
	if ctx.Err() != nil {
		return &fence.StoreError{Op: op, Tile: tile, Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	return nil
}
