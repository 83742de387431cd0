package sqlitecheckpoint

import (
	"context"
	_ "embed"
	"errors"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

//go:embed sql/seal.sql
var sealSQL string

//go:embed sql/move_end.sql
var moveEndSQL string

//go:embed sql/append.sql
var appendSQL string

//go:embed sql/end.sql
var endSQL string

//go:embed sql/tail.sql
var tailSQL string

//go:embed sql/truncate.sql
var truncateSQL string

//go:embed sql/entries.sql
var entriesSQL string

// Seal implements checkpoint.JournalStore.
func (st *store) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	if err := checkpoint.ValidateSeal(tile, epoch); err != nil {
		return err
	}
	return st.db.Write(ctx, "journal seal", tile, func(tx *sqlitedb.Tx) error {
		j, err := end(tx, tile)
		if err == nil {
			err = j.Seal(tile, epoch)
		}
		if err == nil {
			_, err = tx.Exec(sealSQL, tile.String(), int64(epoch), j.End.String())
		}
		return err
	})
}

// Base implements checkpoint.JournalStore.
func (st *store) Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	if err := checkpoint.PutBase(ctx, st, tile, s); err != nil {
		return err
	}
	return st.db.Write(ctx, "journal base", tile, func(tx *sqlitedb.Tx) error {
		j, err := end(tx, tile)
		if err == nil {
			err = j.Base(tile, s.Position)
		}
		if err == nil {
			_, err = tx.Exec(sealSQL, tile.String(), int64(s.Epoch), s.Position.String())
		}
		return err
	})
}

// Append implements checkpoint.JournalStore.
func (st *store) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	if err := checkpoint.ValidateEntry(tile, &e); err != nil {
		return err
	}
	return st.db.Write(ctx, "journal append", tile, func(tx *sqlitedb.Tx) error {
		changed, err := tx.Exec(moveEndSQL, tile.String(), int64(e.Epoch), e.Prev.String(), e.Position.String())
		switch {
		case err != nil:
			return err
		case changed > 0:
			_, err = tx.Exec(appendSQL, tile.String(), int64(e.Seq), int64(e.Epoch), e.Chain.String(), e.Frame)
			return err
		}
		j, err := end(tx, tile)
		if err != nil {
			return err
		}
		if write, err := j.Append(tile, &e); !write {
			return err
		}
		return errors.New("SQLite refused a condition that holds")
	})
}

// end reads what a journal decides by.
func end(tx *sqlitedb.Tx, tile fence.TileID) (j checkpoint.JournalEnd, err error) {
	var sealed int64
	var at string
	found, err := tx.Row(endSQL, []any{tile.String()}, &sealed, &at)
	if err != nil || !found {
		return j, err
	}
	j.Sealed = fence.Epoch(sealed)
	if j.End, err = fence.ParsePosition(at); err != nil {
		return j, &fence.CorruptError{Tile: tile, What: "journal row", At: fence.Position{Epoch: j.Sealed},
			Detail: err.Error()}
	}
	return j, nil
}

// Tail implements checkpoint.JournalStore.
func (st *store) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) (tail []fence.Entry, err error) {
	if err := checkpoint.ValidateJournalSeq(tile, after); err != nil {
		return nil, err
	}
	err = st.db.Read(ctx, "journal tail", tile, func(tx *sqlitedb.Tx) error {
		tail = nil
		return tx.Rows(tailSQL, []any{tile.String(), int64(after)}, func(scan func(...any) error) error {
			e, err := scanEntry(tile, scan)
			tail = append(tail, e)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return tail, nil
}

// Truncate implements checkpoint.JournalStore.
func (st *store) Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error {
	if err := checkpoint.ValidateJournalSeq(tile, upTo); err != nil {
		return err
	}
	return st.db.Write(ctx, "journal truncate", tile, func(tx *sqlitedb.Tx) error {
		_, err := tx.Exec(truncateSQL, tile.String(), int64(upTo))
		return err
	})
}

// JournalHead implements checkpoint.JournalStore.
func (st *store) JournalHead(ctx context.Context, tile fence.TileID) (h checkpoint.JournalHead, err error) {
	if err := guard.Tile(tile); err != nil {
		return checkpoint.JournalHead{}, err
	}
	err = st.db.Read(ctx, "journal head", tile, func(tx *sqlitedb.Tx) error {
		h = checkpoint.JournalHead{Tile: tile}
		if h.JournalEnd, err = end(tx, tile); err != nil {
			return err
		}
		return tx.Rows(entriesSQL, []any{tile.String()}, func(scan func(...any) error) error {
			var seq, epoch int64
			var chain string
			var size int
			if err := scan(&seq, &epoch, &chain, &size); err != nil {
				return err
			}
			at, err := position(tile, seq, epoch, chain)
			h.Add(at, size)
			return err
		})
	})
	if err != nil {
		return checkpoint.JournalHead{}, err
	}
	return h, nil
}

// scanEntry reads a row of tail.sql and verifies it.
func scanEntry(tile fence.TileID, scan func(dest ...any) error) (fence.Entry, error) {
	var seq, epoch int64
	var chain string
	var frame []byte
	if err := scan(&seq, &epoch, &chain, &frame); err != nil {
		return fence.Entry{}, err
	}
	at, err := position(tile, seq, epoch, chain)
	if err != nil {
		return fence.Entry{}, err
	}
	return checkpoint.ParseEntry(tile, at, frame)
}

// position reads an entry's position; what Append cannot have written is a *fence.CorruptError.
func position(tile fence.TileID, seq, epoch int64, chain string) (at fence.Position, err error) {
	at = fence.Position{Epoch: fence.Epoch(epoch), Seq: fence.Seq(seq)}
	if at.Chain, err = fence.ParseChain(chain); err != nil {
		err = &fence.CorruptError{Tile: tile, What: "journal entry", At: at, Detail: err.Error()}
	}
	return at, err
}
