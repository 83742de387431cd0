package sqlitefence

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tilefence/tilefence/fence"
)

//go:embed sql/*.sql migrations/*.sql
var files embed.FS

// The statements, by the names of their files.
const (
	claimNew      = "claim_new"
	claimReleased = "claim_released"
	promote       = "promote"
	release       = "release"
	read          = "read"
	list          = "list"
	retirable     = "retirable"
	raiseFloor    = "raise_floor"
	retire        = "retire"
)

var names = []string{claimNew, claimReleased, promote, release, read, list, retirable, raiseFloor, retire}

// poll is how long SQLite itself waits for a lock. In between, a call looks at its context.
const poll = 50 * time.Millisecond

var errClosed = errors.New("the authority is closed")

// database is one connection and whose turn it is to use it. The connection never sees a context that
// can end: an interrupted statement would leave it in doubt, and the driver might drop it, with all the
// data if that is in memory.
type database struct {
	pool        *sql.DB
	conn        *sql.Conn
	statements  map[string]*sql.Stmt
	busyTimeout time.Duration

	turn   chan struct{} // holds a token while somebody uses the fields below and the connection
	closed bool
}

// call is what one method asks of the database: a conditional write to the tile's row, then the row.
type call struct {
	op        string
	tile      fence.TileID
	statement string // empty when the call only reads
	args      []any
}

// failure is a transaction that did not come about, or of which nobody knows whether it did.
type failure struct {
	outcome error // as in fence.StoreError
	err     error
}

func (f *failure) of(op string, tile fence.TileID) error {
	return &fence.StoreError{Op: op, Tile: tile, Outcome: f.outcome, Err: f.err}
}

func notApplied(err error) *failure { return &failure{fence.ErrNotApplied, err} }

// present carries out a call, as one transaction, and returns the row it left (epoch zero for none), or a
// *fence.StoreError.
func (db *database) present(ctx context.Context, c call) (row fence.Grant, err error) {
	step := func(work context.Context) (err error) {
		row, err = db.apply(work, &c)
		return err
	}
	var failed *failure
	if c.statement == "" {
		failed = db.reading(ctx, step)
	} else {
		failed = db.writing(ctx, step)
	}
	if failed != nil {
		return fence.Grant{}, failed.of(c.op, c.tile)
	}
	return row, nil
}

func (db *database) apply(work context.Context, c *call) (fence.Grant, error) {
	if c.statement != "" {
		if _, err := db.statements[c.statement].ExecContext(work, c.args...); err != nil {
			return fence.Grant{}, err
		}
	}
	row, err := scan(db.statements[read].QueryRowContext(work, int64(c.tile)))
	if errors.Is(err, sql.ErrNoRows) {
		return fence.Grant{}, nil
	}
	return row, err
}

// reading runs a step that writes nothing, again while the file is locked.
func (db *database) reading(ctx context.Context, step func(work context.Context) error) *failure {
	return db.inTurn(ctx, func(work context.Context) *failure {
		if err := db.whileBusy(ctx, func() error { return step(work) }); err != nil {
			return notApplied(err)
		}
		return nil
	})
}

// writing runs a step as one transaction.
func (db *database) writing(ctx context.Context, step func(work context.Context) error) *failure {
	return db.inTurn(ctx, func(work context.Context) *failure {
		if err := db.begin(ctx); err != nil {
			return notApplied(err)
		}
		if err := step(work); err != nil {
			db.rollback(work)
			return notApplied(err)
		}
		if err := db.exec(work, "COMMIT"); err != nil {
			db.rollback(work)
			return &failure{fence.ErrUnknownOutcome, err}
		}
		return nil
	})
}

// inTurn gives f the connection, and a context for it that does not end.
func (db *database) inTurn(ctx context.Context, f func(work context.Context) *failure) *failure {
	if ctx.Err() != nil { // select would choose at random
		return notApplied(context.Cause(ctx))
	}
	select {
	case db.turn <- struct{}{}:
	case <-ctx.Done():
		return notApplied(context.Cause(ctx))
	}
	defer func() { <-db.turn }()
	if db.closed {
		return notApplied(errClosed)
	}
	return f(context.WithoutCancel(ctx))
}

// scan reads a row of tiles.
func scan(from interface{ Scan(dest ...any) error }) (fence.Grant, error) {
	var tile, epoch, minted int64
	var contact sql.NullString
	var claim []byte
	var row fence.Grant
	if err := from.Scan(&tile, &epoch, &contact, &claim, &minted, &row.Mints); err != nil {
		return fence.Grant{}, err
	}
	row.Tile, row.Epoch, row.Contact = fence.TileID(tile), fence.Epoch(epoch), contact.String
	row.Minted = time.UnixMilli(minted).UTC()
	copy(row.ID[:], claim)
	return row, nil
}

// begin starts a transaction that may write, once no other process does.
func (db *database) begin(ctx context.Context) error {
	work := context.WithoutCancel(ctx)
	return db.whileBusy(ctx, func() error { return db.exec(work, "BEGIN IMMEDIATE") })
}

// whileBusy repeats a step that found the file locked, until the busy timeout or ctx ends.
func (db *database) whileBusy(ctx context.Context, step func() error) error {
	for deadline := time.Now().Add(db.busyTimeout); ; {
		err := step()
		var failure *sqlite.Error
		if !errors.As(err, &failure) || failure.Code()&0xff != sqlite3.SQLITE_BUSY { // the low byte is the class
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("locked for %v: %w", db.busyTimeout, err)
		}
	}
}

// rollback ends a transaction if there still is one; some errors have ended it already.
func (db *database) rollback(ctx context.Context) { _ = db.exec(ctx, "ROLLBACK") }

func (db *database) exec(ctx context.Context, query string) error {
	_, err := db.conn.ExecContext(ctx, query)
	return err
}

func (db *database) close() error {
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

// prepare makes the connection, brings the tables up to date and prepares the statements.
func (db *database) prepare(ctx context.Context, synchronous Synchronous) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	db.pool.SetMaxOpenConns(1)
	work := context.WithoutCancel(ctx)
	var err error
	if db.conn, err = db.pool.Conn(work); err != nil {
		return err
	}
	level := "FULL"
	if synchronous == SynchronousNormal {
		level = "NORMAL"
	}
	settings := fmt.Sprintf("PRAGMA busy_timeout = %d; PRAGMA synchronous = %s", poll.Milliseconds(), level)
	// Any first look at a file may find it locked, by a process that opens it too or by the last to close it.
	for _, step := range []func() error{
		func() error { return db.exec(work, settings) },
		func() error { return db.writeAhead(work) },
	} {
		if err := db.whileBusy(ctx, step); err != nil {
			return err
		}
	}
	if err := db.migrate(ctx); err != nil {
		return err
	}
	db.statements = make(map[string]*sql.Stmt)
	for _, name := range names {
		if err := db.whileBusy(ctx, func() error { return db.prepareStatement(work, name) }); err != nil {
			return err
		}
	}
	return nil
}

func (db *database) prepareStatement(ctx context.Context, name string) error {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		return err
	}
	statement, err := db.conn.PrepareContext(ctx, string(text)) //nolint:sqlclosecheck // by close
	if err != nil {
		return err
	}
	db.statements[name] = statement
	return nil
}

// writeAhead turns the write-ahead log on. SQLite answers with the mode that it settled for.
func (db *database) writeAhead(ctx context.Context) error {
	var mode string
	if err := db.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" && mode != "memory" {
		return fmt.Errorf("the file does not allow a write-ahead log (journal mode %s); is it on a local disk?", mode)
	}
	return nil
}

// migrate runs the migrations the file has not had; SQLite keeps their number in the file. A file that a
// later release has migrated is left alone. With nothing to do it does not wait for a writer.
func (db *database) migrate(ctx context.Context) error {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted; the first is number 1
	if err != nil {
		return err
	}
	work := context.WithoutCancel(ctx)
	var version int
	look := func() error { return db.conn.QueryRowContext(work, "PRAGMA user_version").Scan(&version) }
	if err := db.whileBusy(ctx, look); err != nil || version >= len(names) {
		return err
	}
	if err := db.begin(ctx); err != nil {
		return err
	}
	defer db.rollback(work) // of nothing, after a commit
	if err := look(); err != nil {
		return err
	}
	for i := version; i < len(names); i++ {
		text, err := files.ReadFile(names[i])
		if err != nil {
			return err
		}
		if err := db.exec(work, string(text)); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimPrefix(names[i], "migrations/"), err)
		}
		if err := db.exec(work, fmt.Sprintf("PRAGMA user_version = %d", i+1)); err != nil {
			return err
		}
	}
	return db.exec(work, "COMMIT")
}
