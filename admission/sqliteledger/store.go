package sqliteledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"time"

	sqlite "modernc.org/sqlite" // registers the driver "sqlite" as well
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
)

//go:embed schema/*.sql
var schema embed.FS

// schemaVersion is the number of the last file in schema.
const schemaVersion = 1

// Config holds the optional settings of a Store. Nil and the zero value are valid.
type Config struct {
	// BusyTimeout is how long an operation waits for another process's transaction. Zero means 5 s.
	BusyTimeout time.Duration

	// Relaxed syncs at checkpoints only (synchronous=NORMAL): a crash of the process loses nothing, a crash
	// of the machine may lose the last operations, spends and grants alike.
	Relaxed bool
}

// Store is an admission.Store in a SQLite database. Create one with Open.
type Store struct {
	db     *sql.DB
	memory bool
}

var _ admission.Store = (*Store)(nil)

// Memory is the path of a database that lives in memory and ends with its Store.
const Memory = ":memory:"

// Open opens the database file at path, or Memory, and creates the tables it lacks. ctx bounds the
// opening alone. Errors: a *fence.ArgumentError for a bad setting; otherwise SQLite's own, or that the
// file was made by a newer release.
func Open(ctx context.Context, path string, cfg *Config) (*Store, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = 5 * time.Second
	}
	switch {
	case path == "":
		return nil, &fence.ArgumentError{Field: "path", Value: path, Want: `a file name, or ":memory:"`}
	case c.BusyTimeout < time.Millisecond:
		return nil, &fence.ArgumentError{Field: "BusyTimeout", Value: c.BusyTimeout, Want: "at least a millisecond, or zero for 5s"}
	}
	db, err := sql.Open("sqlite", dataSource(path, c))
	if err != nil {
		return nil, fmt.Errorf("ledger: open %s: %w", path, err)
	}
	// One connection: SQLite has one writer anyway, waiting in Go honours contexts, and a database in
	// memory is gone with its connection, so this one is kept for good.
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	s := &Store{db: db, memory: path == Memory}
	// Whoever makes a new file WAL locks the others out for a moment, and SQLite does not wait for that by itself.
	for deadline := time.Now().Add(c.BusyTimeout); ; time.Sleep(busyPause) {
		err := s.migrate(ctx)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil || !isBusy(err) || time.Now().After(deadline) {
			_ = db.Close()
			return nil, fmt.Errorf("ledger: open %s: %w", path, err)
		}
	}
}

const busyPause = 5 * time.Millisecond

// isBusy reports whether another process had the file locked.
func isBusy(err error) bool {
	locked, ok := errors.AsType[*sqlite.Error](err)
	return ok && locked.Code()&0xff == sqlite3.SQLITE_BUSY
}

func dataSource(path string, c Config) string {
	sync := "FULL"
	if c.Relaxed {
		sync = "NORMAL"
	}
	q := url.Values{}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", c.BusyTimeout.Milliseconds()))
	q.Add("_pragma", "journal_mode(WAL)")
	q.Add("_pragma", "synchronous("+sync+")")
	if path == Memory {
		return path + "?" + q.Encode()
	}
	// A file name may contain what a URI gives a meaning to.
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// Close ends the Store, waiting for operations under way.
func (s *Store) Close() error { return s.db.Close() }

func (s *Store) migrate(ctx context.Context) error {
	return s.transact(ctx, "open", "", func(tx *tx) error {
		var have int
		if err := tx.row("PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		if have > schemaVersion {
			return fmt.Errorf("the database has schema %d, this program knows %d", have, schemaVersion)
		}
		if have == schemaVersion {
			return nil
		}
		script, err := schema.ReadFile("schema/001_ledger.sql")
		if err != nil {
			return err
		}
		if _, err := tx.exec(string(script)); err != nil {
			return err
		}
		_, err = tx.exec(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
		return err
	})
}

// tx is an immediate transaction. Its context cannot end, see the package comment.
type tx struct {
	ctx  context.Context
	conn *sql.Conn
}

func (t *tx) exec(query string, args ...any) (changed int64, err error) {
	r, err := t.conn.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (t *tx) row(query string, args ...any) *sql.Row {
	return t.conn.QueryRowContext(t.ctx, query, args...)
}

// transact runs f in one immediate transaction, and rolls back if it fails. The ledger's own answers
// (its sentinels and typed errors) pass through; anything else becomes a *admission.StoreError.
func (s *Store) transact(ctx context.Context, op, id string, f func(*tx) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return notApplied(op, id, err)
	}
	defer conn.Close() //nolint:errcheck // gives the connection back; it has nothing to report
	t := &tx{ctx: context.WithoutCancel(ctx), conn: conn}
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return notApplied(op, id, err)
	}
	if err := f(t); err != nil {
		s.rollback(t)
		return answer(op, id, err)
	}
	if _, err := t.exec("COMMIT"); err != nil {
		s.rollback(t)
		return &admission.StoreError{Op: op, ID: id, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	return nil
}

// read runs f, which makes a single query, without a transaction around it.
func (s *Store) read(ctx context.Context, op, id string, f func(*tx) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return notApplied(op, id, err)
	}
	defer conn.Close() //nolint:errcheck // as above
	return answer(op, id, f(&tx{ctx: context.WithoutCancel(ctx), conn: conn}))
}

func (s *Store) rollback(t *tx) {
	if _, err := t.exec("ROLLBACK"); err != nil && !s.memory {
		// SQLite has rolled back by itself, or the connection is stuck in the transaction and would fail
		// everybody after us. A new one costs little, except in memory, where it would be a new database.
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// answer passes what the ledger has to say, and makes a StoreError of what went wrong.
func answer(op, id string, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{admission.ErrUnknownAction, admission.ErrContested, admission.ErrReused, admission.ErrBalanceLimit} {
		if errors.Is(err, known) {
			return err
		}
	}
	return notApplied(op, id, err)
}

func notApplied(op, id string, err error) error {
	return &admission.StoreError{Op: op, ID: id, Outcome: fence.ErrNotApplied, Err: err}
}
