package sqlitecheckpoint

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"iter"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

//go:embed migrations/*.sql
var migrations embed.FS

//go:embed sql/put.sql
var putSQL string

//go:embed sql/get.sql
var getSQL string

//go:embed sql/list.sql
var listSQL string

// Memory is the path that opens a database in memory.
const Memory = sqlitedb.Memory

// Store is a checkpoint.Backend in SQLite. See the package comment.
type Store struct {
	checkpoint.Backend
	fence.WorldKeeper // the file takes the name and the ID of the first world whose ID is known
	db                *sqlitedb.DB
}

type store struct{ db *sqlitedb.DB }

// Open opens the database at path, creating file and tables as needed; Memory makes one in memory. Close
// it after use. A *fence.ArgumentError names an empty path; other errors are SQLite's, or that the file was made by a
// newer release.
func Open(ctx context.Context, path string) (*Store, error) {
	db, err := sqlitedb.Open(ctx, path, sqlitedb.Options{Migrations: migrations})
	if err != nil {
		return nil, fmt.Errorf("sqlitecheckpoint: open %s: %w", path, err)
	}
	return &Store{&store{db}, db, db}, nil
}

// Close waits for running calls and closes the database.
func (st *Store) Close() error { return st.db.Close() }

// Put implements checkpoint.Store.
func (st *store) Put(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	if err := checkpoint.ValidatePut(tile, &s); err != nil {
		return err
	}
	blob := s.Blob
	if blob == nil {
		blob = []byte{} // nil would be NULL
	}
	return st.db.Write(ctx, "checkpoint put", tile, func(tx *sqlitedb.Tx) error {
		changed, err := tx.Exec(putSQL, tile.String(), int64(s.Epoch), int64(s.Seq), s.Chain.String(), int64(s.Tick),
			s.Contact, s.Sum, fence.Millis(s.Taken), blob)
		if err != nil || changed > 0 {
			return err
		}
		stored, _, _, err := get(tx, tile, false)
		if err != nil {
			return err
		}
		if write, err := stored.Judge(&s); !write {
			return err
		}
		return errors.New("SQLite refused a condition that holds")
	})
}

// Get implements checkpoint.Store.
func (st *store) Get(ctx context.Context, tile fence.TileID) (s fence.Snapshot, found bool, err error) {
	if err := guard.Tile(tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	err = st.db.Read(ctx, "checkpoint get", tile, func(tx *sqlitedb.Tx) error {
		var h checkpoint.Head
		if h, s.Blob, found, err = get(tx, tile, true); err != nil || !found {
			return err
		}
		s = fence.Snapshot{Position: h.Position, Tick: h.Tick, Contact: h.Contact, Sum: h.Sum, Taken: h.Taken,
			Blob: s.Blob}
		return s.Verify(tile)
	})
	if err != nil || !found {
		return fence.Snapshot{}, false, err
	}
	return s, true, nil
}

// get reads a checkpoint, with its blob if whole is set.
func get(tx *sqlitedb.Tx, tile fence.TileID, whole bool) (h checkpoint.Head, blob []byte, found bool, err error) {
	h, err = scanHead(func(dest ...any) (err error) {
		found, err = tx.Row(getSQL, []any{tile.String(), whole}, append(dest, &blob)...)
		return err
	})
	if !found {
		return checkpoint.Head{}, nil, false, err
	}
	return h, blob, true, err
}

// List implements checkpoint.Store.
func (st *store) List(ctx context.Context) iter.Seq2[checkpoint.Head, error] {
	return func(yield func(checkpoint.Head, error) bool) {
		// The heads are read first: the loop's body may call the store, which has one connection.
		var heads []checkpoint.Head
		err := st.db.Read(ctx, "checkpoint list", 0, func(tx *sqlitedb.Tx) error {
			heads = nil
			return tx.Rows(listSQL, nil, func(scan func(...any) error) error {
				h, err := scanHead(scan)
				if err == nil {
					heads = append(heads, h)
				}
				return err
			})
		})
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

// scanHead reads the columns of list.sql. Numbers and names that cannot have been written by Put are a
// *fence.CorruptError.
func scanHead(scan func(dest ...any) error) (checkpoint.Head, error) {
	var tile, chain string
	var epoch, seq, tick, taken int64
	var h checkpoint.Head
	if err := scan(&tile, &epoch, &seq, &chain, &tick, &h.Contact, &h.Sum, &taken, &h.Size); err != nil || tile == "" {
		return checkpoint.Head{}, err
	}
	h.Epoch, h.Seq, h.Tick, h.Taken = fence.Epoch(epoch), fence.Seq(seq), fence.Tick(tick), fence.FromMillis(taken)
	var err1, err2 error
	h.Tile, err1 = fence.ParseTileID(tile)
	h.Chain, err2 = fence.ParseChain(chain)
	if err := errors.Join(err1, err2); err != nil {
		return checkpoint.Head{}, &fence.CorruptError{Tile: h.Tile, What: "checkpoint row", At: h.Position,
			Detail: err.Error()}
	}
	return h, nil
}
