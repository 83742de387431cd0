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
	"strconv"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream"
)

// Log is a stream.Log over a memfence.Store.
type Log struct {
	store *memfence.Store

	mu        sync.Mutex // taken before a tile's own lock, never after
	marks     map[fence.TileID]*Marks
	dead      map[fence.TileID][]stream.Poison
	collected map[fence.TileID]int // as in memfence.State, when marks and dead letters were last looked at
	letters   int                  // ever written, for their names
}

var (
	_ stream.Log        = (*Log)(nil)
	_ fence.WorldKeeper = (*Log)(nil)
)

// EnterWorld implements fence.WorldKeeper, as the store does.
func (l *Log) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return l.store.EnterWorld(ctx, w)
}

// New returns a Log that reads store.
func New(store *memfence.Store) *Log {
	return &Log{store: store, marks: map[fence.TileID]*Marks{}, dead: map[fence.TileID][]stream.Poison{},
		collected: map[fence.TileID]int{}}
}

// Read implements stream.Log.
func (l *Log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	for _, c := range cursors {
		if err := guard.Call(ctx, "read", c.Tile); err != nil {
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
			for j, e := range chunks[i].Entries {
				own, err := stream.ParseEntry(c.Tile, e.Seq, slices.Clone(e.Frame))
				if err != nil {
					chunks[i].Entries, chunks[i].Poison = chunks[i].Entries[:j], poisonOf(&e, err)
					break
				}
				chunks[i].Entries[j] = own
			}
			if s.Owner.Present() {
				chunks[i].Owner = s.Owner
			}
		})
	}
	return chunks, nil
}

func poisonOf(e *fence.Entry, reason error) *stream.Poison {
	return &stream.Poison{Tile: e.Tile, Seq: e.Seq, Epoch: e.Epoch, Reason: reason.Error(),
		Fields: map[string]string{stream.FrameField: string(e.Frame)}}
}

// Snapshot implements stream.Log.
func (l *Log) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	if err := guard.Call(ctx, "read snapshot", tile); err != nil {
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
	if err := guard.Call(ctx, "read position", tile); err != nil {
		return fence.Position{}, err
	}
	var last fence.Position
	l.store.Update(tile, func(s *memfence.State) { last = s.Last() })
	return last, nil
}

// maxDeadLetters is how many dead letters a tile keeps.
const maxDeadLetters = 1000

// DeadLetter implements stream.Log.
func (l *Log) DeadLetter(ctx context.Context, p stream.Poison) error {
	if err := guard.Call(ctx, "dead letter", p.Tile); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetCollected(p.Tile)
	l.letters++
	p.Fields, p.Letter = maps.Clone(p.Fields), strconv.Itoa(l.letters)
	d := append(l.dead[p.Tile], p)
	l.dead[p.Tile] = d[max(0, len(d)-maxDeadLetters):]
	return nil
}

// DeadLetters implements stream.Log.
func (l *Log) DeadLetters(ctx context.Context, tile fence.TileID) ([]stream.Poison, error) {
	if err := guard.Call(ctx, "read dead letters", tile); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetCollected(tile)
	letters := slices.Clone(l.dead[tile])
	for i := range letters {
		letters[i].Fields = maps.Clone(letters[i].Fields)
	}
	return letters, nil
}

// RemoveDeadLetter implements stream.Log.
func (l *Log) RemoveDeadLetter(ctx context.Context, tile fence.TileID, letter string) (bool, error) {
	if err := guard.Call(ctx, "remove dead letter", tile); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	had := len(l.dead[tile])
	l.dead[tile] = slices.DeleteFunc(l.dead[tile], func(p stream.Poison) bool { return p.Letter == letter })
	return len(l.dead[tile]) < had, nil
}

var _ stream.Inspector = (*Log)(nil)

// Stat implements stream.Inspector.
func (l *Log) Stat(ctx context.Context, tiles []fence.TileID) ([]stream.Stat, error) {
	for _, t := range tiles {
		if err := guard.Call(ctx, "stat", t); err != nil {
			return nil, err
		}
	}
	stats := make([]stream.Stat, len(tiles))
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, t := range tiles {
		l.forgetCollected(t)
		st := stream.Stat{Tile: t, Owner: fence.Owner{Tile: t}, DeadLetters: len(l.dead[t])}
		m := l.marksOf(t)
		st.Marks, st.Trimmed = m.Marks, m.Trimmed
		l.store.Update(t, func(s *memfence.State) {
			if s.Owner.Present() {
				st.Owner = s.Owner
			}
			st.Last, st.Entries, st.Memory = s.Last(), len(s.Entries), size(s)
			if len(s.Entries) > 0 {
				st.First = s.Entries[0].Seq
			}
			if s.Snapshot != nil {
				st.HasSnapshot = true
				st.Snapshot = stream.SnapshotHead{Position: s.Snapshot.Position, Tick: s.Snapshot.Tick,
					Contact: s.Snapshot.Contact,
					Taken:   s.Snapshot.Taken, Size: len(s.Snapshot.Blob)}
			}
		})
		stats[i] = st
	}
	return stats, nil
}
