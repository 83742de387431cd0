package sqlitecheckpoint

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

//go:embed sql/0002_journal.sql
var journalSchemaSQL string

//go:embed sql/seal.sql
var sealSQL string

//go:embed sql/append.sql
var appendSQL string

//go:embed sql/sealed.sql
var sealedSQL string

//go:embed sql/tail.sql
var tailSQL string

//go:embed sql/truncate.sql
var truncateSQL string

//go:embed sql/journal_head.sql
var journalHeadSQL string

var _ checkpoint.Journal = (*Store)(nil)

// Seal implements checkpoint.Journal.
func (st *Store) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	if err := checkpoint.CheckSeal(tile, epoch); err != nil {
		return err
	}
	changed, err := st.write(ctx, "journal seal", tile, sealSQL, tile.String(), int64(epoch))
	if changed || err != nil {
		return err
	}
	sealed, _, err := st.sealed(ctx, "journal seal", tile, 0)
	if err != nil {
		return err
	}
	return &checkpoint.SealedError{Tile: tile, Sealed: sealed, Presented: epoch}
}

// Append implements checkpoint.Journal.
func (st *Store) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	if err := checkpoint.CheckEntry(tile, &e); err != nil {
		return err
	}
	changed, err := st.write(ctx, "journal append", tile, appendSQL, tile.String(), int64(e.Seq), int64(e.Epoch), e.Chain.String(), e.Frame)
	if changed || err != nil {
		return err
	}
	sealed, stored, err := st.sealed(ctx, "journal append", tile, e.Seq)
	if err != nil {
		return err
	}
	write, err := checkpoint.JudgeAppend(tile, &e, sealed, stored)
	if write {
		err = failed(ctx, "journal append", tile, fence.ErrNotApplied, errors.New("the journal was sealed for this epoch meanwhile"))
	}
	return err
}

// write runs a statement and says whether it changed a row.
func (st *Store) write(ctx context.Context, op string, tile fence.TileID, statement string, args ...any) (changed bool, err error) {
	if ctx.Err() != nil {
		return false, failed(ctx, op, tile, fence.ErrNotApplied, ctx.Err())
	}
	result, err := st.db.ExecContext(ctx, statement, args...)
	var rows int64
	if err == nil {
		rows, err = result.RowsAffected()
	}
	if err != nil {
		return false, failed(ctx, op, tile, outcome(err), err)
	}
	return rows > 0, nil
}

// sealed reads, at one moment, the epoch a journal is sealed for and what is stored at a sequence.
func (st *Store) sealed(ctx context.Context, op string, tile fence.TileID, seq fence.Seq) (fence.Epoch, fence.Position, error) {
	var sealed, epoch int64
	var chain string
	err := st.db.QueryRowContext(ctx, sealedSQL, tile.String(), int64(seq)).Scan(&sealed, &epoch, &chain)
	if err != nil {
		return 0, fence.Position{}, failed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	if epoch == 0 {
		return fence.Epoch(sealed), fence.Position{}, nil
	}
	at, err := position(tile, seq, epoch, chain)
	return fence.Epoch(sealed), at, err
}

// position reads an entry's position; what Append cannot have written is a *fence.CorruptError.
func position(tile fence.TileID, seq fence.Seq, epoch int64, chain string) (fence.Position, error) {
	at := fence.Position{Epoch: fence.Epoch(epoch), Seq: seq}
	var err error
	if at.Chain, err = fence.ParseChain(chain); err != nil {
		return at, corruptEntry(tile, at, err)
	}
	return at, nil
}

func corruptEntry(tile fence.TileID, at fence.Position, err error) error {
	return &fence.CorruptError{Tile: tile, What: "journal entry", At: at, Detail: err.Error()}
}

// Tail implements checkpoint.Journal.
func (st *Store) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error) {
	if err := checkpoint.CheckJournalSeq(tile, after); err != nil {
		return nil, err
	}
	var tail []fence.Entry
	err := st.rows(ctx, "journal tail", tile, tailSQL, []any{tile.String(), int64(after)}, func(row *sql.Rows) error {
		e, err := scanEntry(tile, row)
		if err == nil {
			tail = append(tail, e)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return tail, nil
}

// scanEntry reads a row of tail.sql and verifies it.
func scanEntry(tile fence.TileID, row *sql.Rows) (fence.Entry, error) {
	var seq, epoch int64
	var chain string
	var frame []byte
	if err := row.Scan(&seq, &epoch, &chain, &frame); err != nil {
		return fence.Entry{}, err
	}
	at, err := position(tile, fence.Seq(seq), epoch, chain)
	if err != nil {
		return fence.Entry{}, err
	}
	return checkpoint.ParseEntry(tile, at, frame)
}

// Truncate implements checkpoint.Journal.
func (st *Store) Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error {
	if err := checkpoint.CheckJournalSeq(tile, upTo); err != nil {
		return err
	}
	_, err := st.write(ctx, "journal truncate", tile, truncateSQL, tile.String(), int64(upTo))
	return err
}

// JournalHead implements checkpoint.Journal.
func (st *Store) JournalHead(ctx context.Context, tile fence.TileID) (checkpoint.JournalHead, error) {
	if err := checkpoint.CheckTile(tile); err != nil {
		return checkpoint.JournalHead{}, err
	}
	h := checkpoint.JournalHead{Tile: tile}
	var err error
	if h.Sealed, _, err = st.sealed(ctx, "journal head", tile, 0); err != nil {
		return checkpoint.JournalHead{}, err
	}
	err = st.rows(ctx, "journal head", tile, journalHeadSQL, []any{tile.String()}, func(row *sql.Rows) error {
		var seq, epoch int64
		var chain string
		var size int
		if err := row.Scan(&seq, &epoch, &chain, &size); err != nil {
			return err
		}
		at, err := position(tile, fence.Seq(seq), epoch, chain)
		h.Add(at, size)
		return err
	})
	if err != nil {
		return checkpoint.JournalHead{}, err
	}
	return h, nil
}

// rows calls scan for each row of a query, until it fails.
func (st *Store) rows(ctx context.Context, op string, tile fence.TileID, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := st.db.QueryContext(ctx, query, args...)
	if err != nil {
		return failed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		err := scan(rows)
		switch {
		case errors.Is(err, fence.ErrCorrupt):
			return err
		case err != nil:
			return failed(ctx, op, tile, fence.ErrNotApplied, err)
		}
	}
	if err := rows.Err(); err != nil {
		return failed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	return nil
}
