package memstream

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream"
)

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
