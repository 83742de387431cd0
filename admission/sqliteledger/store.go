package sqliteledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is an admission.Store in a SQLite database. Create one with Open.
type Store struct {
	admission.Store
	fence.WorldKeeper // the file takes the name and the ID of the first world whose ID is known
	db                *sqlitedb.DB
}

type store struct{ db *sqlitedb.DB }

// Memory is the path of a database that lives in memory and ends with its Store.
const Memory = sqlitedb.Memory

// Open opens the database file at path, or Memory, and creates the tables it lacks. ctx bounds the
// opening alone. Errors: SQLite's own, or that the file was made by a newer release.
func Open(ctx context.Context, path string) (*Store, error) {
	db, err := sqlitedb.Open(ctx, path, sqlitedb.Options{Migrations: migrations})
	if err != nil {
		return nil, fmt.Errorf("sqliteledger: open %s: %w", path, err)
	}
	return &Store{&store{db}, db, db}, nil
}

// Close ends the Store, waiting for operations under way.
func (s *Store) Close() error { return s.db.Close() }

// write runs an operation in one transaction. The ledger's own answers pass through; what SQLite reports is a
// *fence.StoreError.
func (s *store) write(ctx context.Context, op, id string, f func(*sqlitedb.Tx) error) error {
	return s.db.Write(ctx, fmt.Sprintf("%s %q", op, id), 0, f)
}

// read is write for an operation that makes a single query.
func (s *store) read(ctx context.Context, op, id string, f func(*sqlitedb.Tx) error) error {
	return s.db.Read(ctx, fmt.Sprintf("%s %q", op, id), 0, f)
}

// Scan implements admission.Store. It is one transaction, so it sees the ledger at one moment; writers wait for it.
func (s *store) Scan(ctx context.Context, visit func(admission.Record) error) error {
	return s.write(ctx, "scan", "", func(tx *sqlitedb.Tx) error {
		err := tx.Rows(`SELECT owner, asset, balance, version, cooldown_until FROM accounts`, nil,
			func(scan func(...any) error) error {
				var a admission.Account
				var cooldown int64
				if err := scan(&a.Owner, &a.Asset, &a.Balance, &a.Version, &cooldown); err != nil {
					return err
				}
				a.CooldownUntil = date(cooldown)
				return visitIn(ctx, visit, a)
			})
		if err != nil {
			return err
		}
		err = tx.Rows(`SELECT credit_id, owner, asset, amount, credited_at FROM credits`, nil,
			func(scan func(...any) error) error {
				var c admission.Credit
				var at int64
				if err := scan(&c.ID, &c.Owner, &c.Asset, &c.Amount, &at); err != nil {
					return err
				}
				c.At = time.UnixMilli(at).UTC()
				return visitIn(ctx, visit, c)
			})
		if err != nil {
			return err
		}
		return tx.Rows(`SELECT `+artifactColumns+` FROM artifacts`, nil, func(scan func(...any) error) error {
			var row artifactRow
			if err := scan(row.columns()...); err != nil {
				return err
			}
			a, err := row.decode()
			if damage, ok := errors.AsType[*fence.CorruptError](err); ok {
				return visitIn(ctx, visit, damage)
			}
			return visitIn(ctx, visit, a)
		})
	})
}

// visitIn is visit, unless ctx has ended: a scan takes long.
func visitIn(ctx context.Context, visit func(admission.Record) error, r admission.Record) error {
	if ctx.Err() != nil {
		return &fence.StoreError{Op: "scan", Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	return visit(r)
}
