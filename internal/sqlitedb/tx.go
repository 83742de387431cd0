package sqlitedb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tilefence/tilefence/fence"
)

// Tx is what a step of Read or Write works with, and only until the step returns. Errors of its methods are
// SQLite's; a step returns them as they are.
type Tx struct {
	db  *DB
	ctx context.Context
}

// sqlError tells an error of SQLite from one that a step has made.
type sqlError struct{ error }

func (e *sqlError) Unwrap() error { return e.error }

func ofSQL(err error) error {
	if err == nil {
		return nil
	}
	return &sqlError{err}
}

// run calls f with the statement of a query, which is prepared once.
func (t *Tx) run(query string, f func(*sql.Stmt) error) error {
	return ofSQL(t.db.prepared(t.ctx, query, f))
}

// Exec runs a statement and returns how many rows it changed.
func (t *Tx) Exec(query string, args ...any) (changed int64, err error) {
	err = t.run(query, func(s *sql.Stmt) error {
		result, err := s.ExecContext(t.ctx, args...)
		if err == nil {
			changed, err = result.RowsAffected()
		}
		return err
	})
	return changed, err
}

// Row reads the first row of a query into dest; found is false if there is none.
func (t *Tx) Row(query string, args []any, dest ...any) (found bool, err error) {
	err = t.run(query, func(s *sql.Stmt) error { return s.QueryRowContext(t.ctx, args...).Scan(dest...) })
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Rows calls each for every row of a query, until it fails. scan reads the row.
func (t *Tx) Rows(query string, args []any, each func(scan func(dest ...any) error) error) error {
	var stopped error // by each
	err := t.run(query, func(s *sql.Stmt) error {
		rows, err := s.QueryContext(t.ctx, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // rows.Err has it
		scan := func(dest ...any) error { return ofSQL(rows.Scan(dest...)) }
		for stopped == nil && rows.Next() {
			stopped = each(scan)
		}
		return rows.Err()
	})
	if stopped != nil {
		return stopped
	}
	return err
}

// Read runs a step that makes one query, again while the file is locked: step begins anew each time. op and tile
// are for the error; see the package comment.
func (db *DB) Read(ctx context.Context, op string, tile fence.TileID, step func(*Tx) error) error {
	return failed(op, tile, fence.ErrNotApplied, db.inTurn(ctx, func(tx *Tx) error {
		return db.whileBusy(ctx, func() error { return step(tx) })
	}))
}

// Write runs a step in one transaction. op and tile are for the error; see the package comment.
func (db *DB) Write(ctx context.Context, op string, tile fence.TileID, step func(*Tx) error) error {
	outcome := fence.ErrNotApplied
	err := db.inTurn(ctx, func(tx *Tx) error {
		if err := db.begin(ctx); err != nil {
			return ofSQL(err)
		}
		if err := step(tx); err != nil {
			db.rollback(tx.ctx)
			return err
		}
		if err := db.exec(tx.ctx, "COMMIT"); err != nil {
			db.rollback(tx.ctx)
			outcome = fence.ErrUnknownOutcome
			return ofSQL(err)
		}
		return nil
	})
	return failed(op, tile, outcome, err)
}

// inTurn gives f the connection, and a context for it that does not end.
func (db *DB) inTurn(ctx context.Context, f func(*Tx) error) error {
	if ctx.Err() != nil { // select would choose at random
		return ofSQL(context.Cause(ctx))
	}
	select {
	case db.turn <- struct{}{}:
	case <-ctx.Done():
		return ofSQL(context.Cause(ctx))
	}
	defer func() { <-db.turn }()
	if db.closed {
		return ofSQL(errClosed)
	}
	return f(&Tx{db: db, ctx: context.WithoutCancel(ctx)})
}

// failed makes a *fence.StoreError of what SQLite reports, and leaves an error that a step has made as it is.
func failed(op string, tile fence.TileID, outcome, err error) error {
	if _, ok := errors.AsType[*sqlError](err); ok {
		return &fence.StoreError{Op: op, Tile: tile, Outcome: outcome, Err: err}
	}
	return err
}
