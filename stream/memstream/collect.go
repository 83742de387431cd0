package memstream

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream"
)

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
