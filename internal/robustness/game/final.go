package game

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// ReadFinal reads a tile from the stores while nothing writes: what they hold, and where and in which state a new owner
// would begin. With an error it gives what could be read.
func ReadFinal(ctx context.Context, stores tile.Seams, id fence.TileID) (history.FinalTile, error) {
	chunks, err1 := stores.Log.Read(ctx, []stream.Cursor{{Tile: id, Limit: 1 << 20}})
	owner, err2 := stores.Store.Owner(ctx, id)
	row, err3 := stores.Authority.Lookup(ctx, id)
	if errors.Is(err3, fence.ErrNeverOwned) { // a restore may have taken it away
		err3 = nil
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return history.FinalTile{}, err
	}
	f := history.FinalTile{Owner: history.OwnerOf(owner), Row: history.GrantOf(row)}
	for i := range chunks[0].Entries {
		f.Entries = append(f.Entries, history.EntryOf(&chunks[0].Entries[i]))
		f.End = f.Entries[i].Position
	}
	recovery, err := stream.Recover(ctx, stores.Log, id)
	if err != nil {
		return f, err
	}
	var state Register
	err = state.Recover(&recovery)
	f.End, f.State = history.Position(recovery.Position), state.Digest()
	f.Applied = append([]string{}, state.Applied...) // not nil: the game can tell
	f.Here, f.Begun, f.Arrived = slices.Sorted(maps.Keys(state.coins)), state.begun, state.arrived
	for _, n := range state.coins {
		f.Coins += n
	}
	return f, errors.Join(err, chunks[0].Err)
}

// Recover folds what a new owner reads.
func (r *Register) Recover(from *stream.Recovery) error {
	state, _, err := stream.OpenSnapshot(from.Snapshot.Blob)
	err = errors.Join(err, r.Restore(state))
	for i := range from.Entries {
		err = errors.Join(err, r.Fold(&from.Entries[i]))
	}
	return err
}

// Fold applies the events of an entry.
func (r *Register) Fold(e *fence.Entry) error {
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return err
	}
	return r.Apply(e.Tick, b.Events)
}
