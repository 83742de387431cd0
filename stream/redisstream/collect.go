package redisstream

import (
	"context"
	"strconv"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream"
)

var _ stream.Collector = (*Log)(nil)

// Expire implements stream.Collector.
func (l *Log) Expire(
	ctx context.Context, tile fence.TileID, durable fence.Position, after time.Duration,
) (bool, error) {
	if err := stream.ValidateExpire(tile, durable, after); err != nil {
		return false, err
	}
	if err := guard.Call(ctx, "expire", tile); err != nil {
		return false, err
	}
	k := l.functions.World().Keys(tile)
	values, err := l.functions.Call(ctx, "expire", redisfence.FunctionCall{Tile: tile, Function: "tilefence_expire_v1",
		Keys: []string{k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead},
		Args: []any{durable.String(), strconv.FormatInt(after.Milliseconds(), 10)}})
	if err != nil {
		return false, err
	}
	if len(values) != 1 {
		return false, unreadable("expire", tile)
	}
	left, ok := values[0].(int64)
	if !ok {
		return false, unreadable("expire", tile)
	}
	return left >= 0, nil
}
