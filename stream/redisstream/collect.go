package redisstream

import (
	"context"
	"strconv"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/stream"
)

var _ stream.Collector = (*Log)(nil)

// Expire implements stream.Collector: one pipeline a node.
func (l *Log) Expire(ctx context.Context, tiles []stream.Quiet, after time.Duration) []stream.Expiry {
	answers := make([]stream.Expiry, len(tiles))
	var calls []redisfence.FunctionCall
	var of []int // the tile of each call
	for i := range tiles {
		q := &tiles[i]
		if answers[i].Err = q.Validate(after); answers[i].Err != nil {
			continue
		}
		k := l.functions.World().Keys(q.Tile)
		calls = append(calls, redisfence.FunctionCall{Tile: q.Tile, Function: "tilefence_expire_v1",
			Keys: []string{k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead},
			Args: []any{q.Durable.String(), strconv.FormatInt(after.Milliseconds(), 10)}})
		of = append(of, i)
	}
	if len(calls) == 0 {
		return answers
	}
	for n, reply := range l.functions.CallMany(ctx, "expire", calls) {
		answers[of[n]] = expiryOf(calls[n].Tile, reply)
	}
	return answers
}

func expiryOf(tile fence.TileID, r redisfence.FunctionReply) stream.Expiry {
	if r.Err != nil {
		return stream.Expiry{Err: r.Err}
	}
	if len(r.Values) == 1 {
		if left, ok := r.Values[0].(int64); ok {
			return stream.Expiry{Expires: left >= 0}
		}
	}
	return stream.Expiry{Err: unreadable("expire", tile)}
}
