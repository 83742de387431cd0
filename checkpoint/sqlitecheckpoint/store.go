package sqlitecheckpoint

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"time"

	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

//go:embed sql/0001_checkpoints.sql
var schemaSQL string

//go:embed sql/put.sql
var putSQL string

//go:embed sql/get.sql
var getSQL string

//go:embed sql/head.sql
var headSQL string

//go:embed sql/list.sql
var listSQL string

// Memory is the path that opens a database in memory.
const Memory = ":memory:"

// DefaultBusyTimeout is how long a call waits for a lock that another process holds.
const DefaultBusyTimeout = 5 * time.Second

// maxConns bounds the connections to a file. Readers do not wait for the writer, nor for each other.
const maxConns = 4

// Config holds a Store's options. The zero value of each field means its default.
type Config struct {
	// BusyTimeout is how long a call waits for a lock that another process holds on the file, to the
	// millisecond. Default DefaultBusyTimeout.
	BusyTimeout time.Duration
}

// Store is a checkpoint.Store and a checkpoint.Journal in SQLite. See the package comment.
type Store struct{ db *sql.DB }

var _ checkpoint.Store = (*Store)(nil)

// Open opens the database at path, creating file and tables as needed; Memory makes one in memory. Close
// it after use. A *fence.ArgumentError names an empty path or an option out of range; other errors are
// SQLite's.
func Open(ctx context.Context, path string, cfg *Config) (*Store, error) {
	busy := DefaultBusyTimeout
	if cfg != nil && cfg.BusyTimeout != 0 {
		busy = cfg.BusyTimeout
	}
	switch {
	case path == "":
		return nil, &fence.ArgumentError{Field: "path", Value: path, Want: `a file, or ":memory:"`}
	case busy < 0:
		return nil, &fence.ArgumentError{Field: "BusyTimeout", Value: busy, Want: "a duration, or zero for the default"}
	}
	name, conns := Memory, 1 // every connection to :memory: is a database of its own
	if path != Memory {
		name, conns = source(path, busy), maxConns
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, fmt.Errorf("open checkpoints in %s: %w", path, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	// Whoever makes a new file WAL locks the others out for a moment, and SQLite does not wait for that by itself.
	for deadline := time.Now().Add(busy); ; time.Sleep(busyPause) {
		_, err := db.ExecContext(ctx, schemaSQL+journalSchemaSQL)
		if err == nil {
			return &Store{db: db}, nil
		}
		if ctx.Err() != nil || outcome(err) != fence.ErrNotApplied || time.Now().After(deadline) { //nolint:errorlint // outcome gives one of two
			_ = db.Close()
			return nil, fmt.Errorf("open checkpoints in %s: %w", path, err)
		}
	}
}

const busyPause = 5 * time.Millisecond

// source is what the driver calls the file at path, with the options every connection sets.
func source(path string, busy time.Duration) string {
	options := url.Values{
		"_busy_timeout": {strconv.FormatInt(busy.Milliseconds(), 10)},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"},
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + options.Encode()
}

// Close waits for running calls and closes the database.
func (st *Store) Close() error { return st.db.Close() }

// Put implements checkpoint.Store.
func (st *Store) Put(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	if err := checkpoint.CheckPut(tile, &s); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return failed(ctx, "checkpoint put", tile, fence.ErrNotApplied, ctx.Err())
	}
	blob := s.Blob
	if blob == nil {
		blob = []byte{} // nil would be NULL
	}
	result, err := st.db.ExecContext(ctx, putSQL, tile.String(), int64(s.Epoch), int64(s.Seq), s.Chain.String(), int64(s.Tick),
		s.Contact, s.Sum, fence.Millis(s.Taken), blob)
	var changed int64
	if err == nil {
		changed, err = result.RowsAffected()
	}
	if err != nil {
		return failed(ctx, "checkpoint put", tile, outcome(err), err)
	}
	if changed > 0 {
		return nil
	}
	stored, err := scanHead(st.db.QueryRowContext(ctx, headSQL, tile.String()))
	if err != nil {
		return failed(ctx, "checkpoint put", tile, fence.ErrNotApplied, err)
	}
	write, err := stored.Judge(&s)
	if write {
		// The row is never deleted and never goes back, unless somebody does it by hand.
		err = failed(ctx, "checkpoint put", tile, fence.ErrNotApplied, errors.New("the stored checkpoint went back meanwhile"))
	}
	return err
}

// Get implements checkpoint.Store.
func (st *Store) Get(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	if err := checkpoint.CheckTile(tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	var blob []byte
	h, err := scanHead(st.db.QueryRowContext(ctx, getSQL, tile.String()), &blob)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fence.Snapshot{}, false, nil
	case errors.Is(err, fence.ErrCorrupt):
		return fence.Snapshot{}, false, err
	case err != nil:
		return fence.Snapshot{}, false, failed(ctx, "checkpoint get", tile, fence.ErrNotApplied, err)
	}
	s := fence.Snapshot{Position: h.Position, Tick: h.Tick, Contact: h.Contact, Sum: h.Sum, Taken: h.Taken, Blob: blob}
	if err := s.Verify(tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	return s, true, nil
}

// List implements checkpoint.Store.
func (st *Store) List(ctx context.Context) iter.Seq2[checkpoint.Head, error] {
	return func(yield func(checkpoint.Head, error) bool) {
		// The heads are read first: the loop's body may call the store, which in memory has one connection.
		heads, err := st.list(ctx)
		for _, h := range heads {
			if !yield(h, nil) {
				return
			}
		}
		if err != nil {
			yield(checkpoint.Head{}, err)
		}
	}
}

func (st *Store) list(ctx context.Context) (heads []checkpoint.Head, err error) {
	rows, err := st.db.QueryContext(ctx, listSQL)
	if err != nil {
		return nil, failed(ctx, "checkpoint list", 0, fence.ErrNotApplied, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		h, err := scanHead(rows)
		switch {
		case errors.Is(err, fence.ErrCorrupt):
			return heads, err
		case err != nil:
			return heads, failed(ctx, "checkpoint list", 0, fence.ErrNotApplied, err)
		}
		heads = append(heads, h)
	}
	if err := rows.Err(); err != nil {
		return heads, failed(ctx, "checkpoint list", 0, fence.ErrNotApplied, err)
	}
	return heads, nil
}

// scanHead reads a row of head.sql, or of get.sql with a destination for the blob. Numbers and names that
// cannot have been written by Put are a *fence.CorruptError.
func scanHead(row interface{ Scan(...any) error }, blob ...any) (checkpoint.Head, error) {
	var tile, chain string
	var epoch, seq, tick, taken int64
	var h checkpoint.Head
	err := row.Scan(append([]any{&tile, &epoch, &seq, &chain, &tick, &h.Contact, &h.Sum, &taken, &h.Size}, blob...)...)
	if err != nil {
		return checkpoint.Head{}, err
	}
	h.Epoch, h.Seq, h.Tick, h.Taken = fence.Epoch(epoch), fence.Seq(seq), fence.Tick(tick), fence.FromMillis(taken)
	var err1, err2 error
	h.Tile, err1 = fence.ParseTileID(tile)
	h.Chain, err2 = fence.ParseChain(chain)
	if err := errors.Join(err1, err2); err != nil {
		return checkpoint.Head{}, &fence.CorruptError{Tile: h.Tile, What: "checkpoint row", At: h.Position, Detail: err.Error()}
	}
	return h, nil
}

// outcome classifies an error of the write: a file that stayed locked was not written.
func outcome(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_BUSY {
		return fence.ErrNotApplied
	}
	return fence.ErrUnknownOutcome
}

func failed(ctx context.Context, op string, tile fence.TileID, outcome, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &fence.StoreError{Op: op, Tile: tile, Outcome: outcome, Err: err}
}
