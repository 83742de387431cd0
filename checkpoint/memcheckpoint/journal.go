package memcheckpoint

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// journal is what a Store keeps of a write-through tile.
type journal struct {
	checkpoint.JournalEnd
	entries map[fence.Seq]fence.Entry
}

var _ checkpoint.JournalStore = (*store)(nil)

// Seal implements checkpoint.JournalStore.
func (st *store) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	if err := cmp.Or(checkpoint.ValidateSeal(tile, epoch), guard.Ended(ctx, "journal seal", tile)); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	j := st.journal(tile)
	if err := j.JournalEnd.Seal(tile, epoch); err != nil {
		return err
	}
	j.Sealed = epoch
	return nil
}

// journal is a tile's, which may be new. st.mu is held.
func (st *store) journal(tile fence.TileID) *journal {
	j := st.journals[tile]
	if j == nil {
		j = &journal{entries: map[fence.Seq]fence.Entry{}}
		st.journals[tile] = j
	}
	return j
}

// Base implements checkpoint.JournalStore.
func (st *store) Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	if err := checkpoint.PutBase(ctx, st, tile, s); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	j := st.journal(tile)
	if err := j.JournalEnd.Base(tile, s.Position); err != nil {
		return err
	}
	j.Sealed, j.End = s.Epoch, s.Position
	return nil
}

// Append implements checkpoint.JournalStore.
func (st *store) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	if err := cmp.Or(checkpoint.ValidateEntry(tile, &e), guard.Ended(ctx, "journal append", tile)); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	j := st.journal(tile)
	write, err := j.JournalEnd.Append(tile, &e)
	if !write {
		return err
	}
	e.Frame = slices.Clone(e.Frame)
	j.entries[e.Seq], j.End = e, e.Position
	return nil
}

// Tail implements checkpoint.JournalStore.
func (st *store) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error) {
	if err := cmp.Or(checkpoint.ValidateJournalSeq(tile, after), guard.Ended(ctx, "journal tail", tile)); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	var tail []fence.Entry
	for _, seq := range st.sequences(tile) {
		if seq <= after {
			continue
		}
		stored := st.journals[tile].entries[seq]
		e, err := checkpoint.ParseEntry(tile, stored.Position, slices.Clone(stored.Frame))
		if err != nil {
			return nil, err
		}
		tail = append(tail, e)
	}
	return tail, nil
}

// sequences are those of a tile's entries, in order.
func (st *store) sequences(tile fence.TileID) []fence.Seq {
	j := st.journals[tile]
	if j == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(j.entries))
}

// Truncate implements checkpoint.JournalStore.
func (st *store) Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error {
	err := cmp.Or(checkpoint.ValidateJournalSeq(tile, upTo), guard.Ended(ctx, "journal truncate", tile))
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if j := st.journals[tile]; j != nil {
		maps.DeleteFunc(j.entries, func(seq fence.Seq, _ fence.Entry) bool { return seq <= upTo })
	}
	return nil
}

// JournalHead implements checkpoint.JournalStore.
func (st *store) JournalHead(ctx context.Context, tile fence.TileID) (checkpoint.JournalHead, error) {
	if err := cmp.Or(guard.Tile(tile), guard.Ended(ctx, "journal head", tile)); err != nil {
		return checkpoint.JournalHead{}, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	h := checkpoint.JournalHead{Tile: tile}
	if j := st.journals[tile]; j != nil {
		h.JournalEnd = j.JournalEnd
	}
	for _, seq := range st.sequences(tile) {
		e := st.journals[tile].entries[seq]
		h.Add(e.Position, len(e.Frame))
	}
	return h, nil
}
