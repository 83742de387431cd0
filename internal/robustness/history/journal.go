package history

import (
	"context"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// journal passes every call on and records who took a journal over, and how far claimants read it.
type journal struct {
	checkpoint.JournalStore
	recorder *Recorder
	client   clientOf
}

func (j *journal) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	err := j.JournalStore.Seal(ctx, tile, epoch)
	if err == nil {
		j.recorder.Append(Record{Client: j.client(tile), Kind: Sealed, Tile: tile, Position: Position{Epoch: epoch}})
	}
	return err
}

func (j *journal) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error) {
	tail, err := j.JournalStore.Tail(ctx, tile, after)
	if n := len(tail); n > 0 {
		j.recorder.Append(Record{Client: j.client(tile), Kind: Recovered, Tile: tile,
			Position: Position(tail[n-1].Position)})
	}
	return tail, err
}
