// Package sqlitedb opens the SQLite databases of this module and runs transactions in them. It is the one package
// that links the driver; only the leaf packages named for SQLite import it.
//
//	db, err := sqlitedb.Open(ctx, "ledger.db", sqlitedb.Options{Migrations: files})
//	err = db.Write(ctx, "grant", 0, func(tx *sqlitedb.Tx) error {
//		_, err := tx.Exec("UPDATE accounts SET balance = balance + 1 WHERE id = ?", id)
//		return err
//	})
//
// # Guarantees
//
// Write runs its step in one immediate transaction: it is applied as a whole or not at all, and no other process
// writes meanwhile. A file is in write-ahead mode and synchronised at every commit.
//
// # Failures
//
// Errors of SQLite are a *fence.StoreError: fence.ErrUnknownOutcome if the commit itself failed, and
// fence.ErrNotApplied otherwise, as when another process keeps the file locked for longer than 10 s or than
// ctx allows. Any other error of a step is returned as it is, and its transaction is rolled back.
//
// # Concurrency
//
// A DB is safe for concurrent use. It has one connection, and calls take turns: SQLite has one writer at a time,
// and a database in memory lives in its connection. The connection never sees a context that can end, since an
// interrupted statement would leave its state unknown. A ctx that ends is noticed while a call waits for its turn, and
// within some milliseconds while it waits for another process; a transaction that has begun is carried through.
package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tilefence/tilefence/fence"
)

// Memory is the path of a database in memory, private to its DB.
const Memory = ":memory:"

// busyTimeout is how long a call waits while another process writes to the file.
const busyTimeout = 10 * time.Second

// poll is how long SQLite itself waits for a lock. In between, a call looks at its context. SQLite looks for
// the lock ever more rarely, so a longer wait would let a busy process keep others out for seconds.
const poll = 5 * time.Millisecond

// Options are the settings of a database.
type Options struct {
	// Migrations holds the files migrations/*.sql, each of which brings the tables one step further, in the order
	// of their names. SQLite keeps in the file how many it has had.
	Migrations fs.FS

	// Newer accepts a file that a later release has migrated further. Without it, such a file is refused.
	Newer bool
}

// DB is a database. Create one with Open.
type DB struct {
	pool *sql.DB
	path string

	turn chan struct{} // holds a token while a call uses the fields below
	conn *sql.Conn
	// statements are prepared once, by their text.
	statements map[string]*sql.Stmt
	// unfinished says that a transaction may still be open, because it could not be rolled back.
	unfinished bool
	closed     bool
}

var errClosed = errors.New("the database is closed")

// Open opens the database file at path, or Memory, creating it if there is none, and brings its tables up to date.
// path is a file name, not a URI. Errors: a *fence.ArgumentError; otherwise what went wrong with the file, in which
// case nothing stays open. A ctx that ends makes Open fail.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	if path == "" || strings.HasPrefix(path, "file:") {
		return nil, &fence.ArgumentError{Field: "path", Value: path, Want: "a file name, or :memory:"}
	}
	source := path
	if path != Memory { // a URI, in which no byte of the path has a meaning of its own
		source = "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	}
	pool, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, err
	}
	db := &DB{pool: pool, path: path, turn: make(chan struct{}, 1), statements: map[string]*sql.Stmt{}}
	if err := db.prepare(ctx, &o); err != nil {
		_ = db.Close() // the first error says more
		return nil, err
	}
	return db, nil
}

// prepare makes the connection and brings the tables up to date.
func (db *DB) prepare(ctx context.Context, o *Options) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	db.pool.SetMaxOpenConns(1)
	work := context.WithoutCancel(ctx)
	var err error
	if db.conn, err = db.pool.Conn(work); err != nil {
		return err
	}
	settings := fmt.Sprintf("PRAGMA busy_timeout = %d; PRAGMA synchronous = FULL", poll.Milliseconds())
	// Any first look at a file may find it locked, by a process that opens it too or by the last to close it.
	for _, step := range []func() error{
		func() error { return db.script(work, settings) },
		func() error { return db.writeAhead(work) },
	} {
		if err := db.whileBusy(ctx, step); err != nil {
			return err
		}
	}
	return db.migrate(ctx, o)
}

// writeAhead turns the write-ahead log on. SQLite answers with the mode that it chose.
func (db *DB) writeAhead(ctx context.Context) error {
	var mode string
	if err := db.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" && mode != "memory" {
		return fmt.Errorf("the file does not allow a write-ahead log (journal mode %s); is it on a local disk?", mode)
	}
	return nil
}

// migrate runs the migrations that the file has not had. With none to run it does not wait for a writer.
func (db *DB) migrate(ctx context.Context, o *Options) error {
	names, err := fs.Glob(o.Migrations, "migrations/*.sql") // sorted; the first is number 1
	if err != nil {
		return err
	}
	work := context.WithoutCancel(ctx)
	var version int
	look := func() error { return db.conn.QueryRowContext(work, "PRAGMA user_version").Scan(&version) }
	err = db.whileBusy(ctx, look)
	switch {
	case err != nil || version == len(names):
		return err
	case version > len(names):
		if o.Newer {
			return nil
		}
		return fmt.Errorf("the file has schema %d, this program knows %d: use the newer release", version, len(names))
	}
	if err := db.begin(ctx); err != nil {
		return err
	}
	defer db.rollback(work) // of nothing, after a commit
	if err := look(); err != nil {
		return err
	}
	for i := version; i < len(names); i++ {
		text, err := fs.ReadFile(o.Migrations, names[i])
		if err != nil {
			return err
		}
		if err := db.script(work, string(text)); err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		if err := db.script(work, fmt.Sprintf("PRAGMA user_version = %d", i+1)); err != nil {
			return err
		}
	}
	return db.exec(work, "COMMIT")
}

// Close waits for the call in progress and closes the database; a database in memory is gone with it. Calls made
// later fail with fence.ErrNotApplied. Closing twice is no error.
func (db *DB) Close() error {
	db.turn <- struct{}{}
	defer func() { <-db.turn }()
	if db.closed {
		return nil
	}
	db.closed = true
	var errs []error
	for _, statement := range db.statements { // SQLite keeps a file open while there are any
		errs = append(errs, statement.Close())
	}
	if db.conn != nil {
		errs = append(errs, db.conn.Close()) // gives it back to the pool
	}
	return errors.Join(append(errs, db.pool.Close())...)
}

// script runs statements that are needed once.
func (db *DB) script(ctx context.Context, text string) error {
	_, err := db.conn.ExecContext(ctx, text)
	return err
}

func (db *DB) exec(ctx context.Context, query string) error {
	return db.prepared(ctx, query, func(s *sql.Stmt) error {
		_, err := s.ExecContext(ctx)
		return err
	})
}

// prepared calls f with the statement of a query, and prepares it the first time.
func (db *DB) prepared(ctx context.Context, query string, f func(*sql.Stmt) error) error {
	if db.statements[query] == nil {
		s, err := db.conn.PrepareContext(ctx, query) //nolint:sqlclosecheck // by Close
		if err != nil {
			return err
		}
		db.statements[query] = s
	}
	return f(db.statements[query])
}

// begin starts a transaction that may write, once no other process does.
func (db *DB) begin(ctx context.Context) error {
	work := context.WithoutCancel(ctx)
	if db.unfinished {
		db.rollback(work)
		db.unfinished = false
	}
	return db.whileBusy(ctx, func() error { return db.exec(work, "BEGIN IMMEDIATE") })
}

// rollback ends a transaction if there still is one; some errors have ended it already. If it fails, the next
// transaction tries again before it begins.
func (db *DB) rollback(ctx context.Context) { db.unfinished = db.exec(ctx, "ROLLBACK") != nil }

// whileBusy repeats a step that found the file locked, until busyTimeout is over or ctx ends.
func (db *DB) whileBusy(ctx context.Context, step func() error) error {
	for deadline := time.Now().Add(busyTimeout); ; {
		err := step()
		locked, ok := errors.AsType[*sqlite.Error](err)
		if !ok || locked.Code()&0xff != sqlite3.SQLITE_BUSY { // the low byte is the class
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("locked for %v: %w", busyTimeout, err)
		}
	}
}
