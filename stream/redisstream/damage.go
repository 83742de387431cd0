package redisstream

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
)

// keyed is a command that was sent, and its key.
type keyed struct {
	key string
	cmd redis.Cmder
}

// tileRead is the result of the reads of one tile. err is nil, or a *fence.CorruptError or *fence.StoreError.
type tileRead struct {
	refused redislib.Refused
	err     error
}

// readOf notes the first error of the reads of a tile.
func readOf(tile fence.TileID, reads ...keyed) tileRead {
	r := tileRead{refused: redislib.Refused{Tile: tile}}
	for _, read := range reads {
		if err := read.cmd.Err(); err != nil && !errors.Is(err, redis.Nil) { // MEMORY USAGE of no key is nil
			r.refused.Keys, r.refused.Err = []string{read.key}, err
			break
		}
	}
	return r
}

// explain says of each tile why it could not be read, and returns how many could not because the store did not answer:
// a tile with a key of a wrong type is damaged, which is no reason to give up the others.
func (l *Log) explain(ctx context.Context, op string, reads []tileRead) (failed int) {
	var refused []*redislib.Refused
	for i := range reads {
		if reads[i].refused.Err != nil {
			refused = append(refused, &reads[i].refused)
		}
	}
	redislib.Explain(ctx, l.client, refused)
	for i := range reads {
		switch r := &reads[i]; {
		case r.refused.Err == nil:
		case errors.Is(r.refused.Err, fence.ErrCorrupt):
			r.err = r.refused.Err
		default:
			failed++
			r.err = &fence.StoreError{Op: op, Tile: r.refused.Tile, Outcome: fence.ErrNotApplied, Err: r.refused.Err}
		}
	}
	return failed
}

// explainOne is explain for one tile.
func (l *Log) explainOne(ctx context.Context, op string, read tileRead) error {
	reads := [1]tileRead{read}
	l.explain(ctx, op, reads[:])
	return reads[0].err
}
