package history

import (
	"context"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// journal passes every call on and records who took a journal over, what it has been
// given, what base was laid, and how far claimants read it.
type journal struct {
	checkpoint.JournalStore
	recorder *Recorder
	client   clientOf
}

// Journal returns a journal that records what one client does with it.
func (r *Recorder) Journal(client string, j checkpoint.JournalStore) checkpoint.JournalStore {
	return &journal{JournalStore: j, recorder: r, client: always(client)}
}

func (j *journal) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	err := j.JournalStore.Seal(ctx, tile, epoch)
	if err == nil {
		j.recorder.Append(Record{Client: j.client(tile), Kind: Sealed, Tile: tile, Position: Position{Epoch: epoch}})
	}
	return err
}

// Base records what may have been laid: an answer that was lost is no reason to know it less.
func (j *journal) Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	j.recorder.Append(Record{Client: j.client(tile), Kind: Based, Tile: tile, Snapshot: &SnapshotCall{
		Position: Position(s.Position), Tick: s.Tick, State: fence.Checksum(s.Blob)}})
	return j.JournalStore.Base(ctx, tile, s)
}

func (j *journal) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	err := j.JournalStore.Append(ctx, tile, e)
	if err == nil {
		j.recorder.Append(Record{Client: j.client(tile), Kind: Journaled, Tile: tile, Position: Position(e.Position)})
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
