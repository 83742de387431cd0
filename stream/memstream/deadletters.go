package memstream

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream"
)

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
