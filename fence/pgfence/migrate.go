package pgfence

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// schemaTable keeps, in the schema of the table of tiles, which migrations each such table has had.
const schemaTable = "tilefence_schema"

// migration is one file: 0001_tiles.sql has version 1.
type migration struct {
	version int
	sql     string
}

// Migrate creates the table of tiles, or brings that of an earlier release up to date, and mints the identity of its
// world. Once that is done, calling it again takes two queries and needs no more than the right to read. A table of a
// world with another name is a *fence.WorldError. Any number of
// processes may call it at the same moment: an advisory lock lets one of them work and the others wait,
// and all of its work is one transaction. A table that a later release has migrated is left alone.
//
// Run with a role that may create tables. The schema, if Config.Table names one, must exist.
//
// After an error, whatever it is, Migrate may be called again. It is a *fence.StoreError if the server does not answer,
// is starting or stopping, has no connection left, or is a standby: then a later call may succeed without a change of
// settings.
func (a *Authority) Migrate(ctx context.Context) error {
	own := a.own
	migrations, err := loadMigrations(own.table, own.world)
	if err != nil {
		return err
	}
	err = own.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return own.poolers.check(ctx, conn) })
	version := 0
	if err == nil {
		version, err = own.version(ctx, own.pool)
	}
	if err == nil && version < migrations[len(migrations)-1].version {
		// Not BeginFunc's default: a stricter isolation would fail where this only has to wait.
		err = pgx.BeginTxFunc(ctx, own.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return own.apply(ctx, tx, migrations)
		})
	}
	if err == nil {
		_, err = own.World(ctx)
	}
	if failed, ok := errors.AsType[*fence.StoreError](err); ok {
		err = failed.Err // of World, which calls every failure one of the store
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("pgfence: migrate table %s: %w", own.table, own.hint(err))
	if passing(err) {
		return &fence.StoreError{Op: "migrate", Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	return err
}

// passing reports whether a failure ends without a change of settings: a server does not answer, is starting or
// stopping, has no connection left, or takes no writes. Everything else, as a wrong certificate, password, database or
// world, fails again however often it is tried.
func passing(err error) bool {
	if reply, ok := errors.AsType[*pgconn.PgError](err); ok {
		return !statementLost(reply) &&
			(strings.HasPrefix(reply.Code, classConnection) || slices.Contains(passingCodes, reply.Code))
	}
	// An alert of TLS comes as an error of the network, and means certificates or versions that do not match.
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "remote error" || op.Op == "local error") {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || slices.ContainsFunc(passingErrors, func(e error) bool { return errors.Is(err, e) })
}

// passingCodes are shutdown by an operator, a crash, a start, too many connections, and a standby.
var passingCodes = []string{"57P01", "57P02", "57P03", codeTooMany, codeReadOnly}

var passingErrors = []error{syscall.ECONNREFUSED, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF,
	context.DeadlineExceeded, context.Canceled, pgconn.ErrReadOnlyConnection,
	pgconn.ErrStandbyConnection}

// version is the last migration the table has had; zero for none.
func (a *authority) version(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (int, error) {
	var version int
	query := "SELECT coalesce(max(version), 0) FROM " + a.table.sibling(schemaTable).quoted() + " WHERE table_name = $1"
	err := db.QueryRow(ctx, query, a.table.name).Scan(&version)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeUndefinedTable {
		return 0, nil
	}
	return version, err
}

func (a *authority) apply(ctx context.Context, tx pgx.Tx, migrations []migration) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey(a.table)); err != nil {
		return err
	}
	versions := a.table.sibling(schemaTable).quoted()
	if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+versions+` (
		table_name text, version integer, applied_at timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (table_name, version))`); err != nil {
		return err
	}
	version, err := a.version(ctx, tx)
	if err != nil {
		return err
	}
	for _, m := range migrations {
		if m.version <= version {
			continue
		}
		if _, err := tx.Exec(ctx, m.sql); err != nil {
			return fmt.Errorf("version %d: %w", m.version, err)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO "+versions+" (table_name, version) VALUES ($1, $2)", a.table.name,
			m.version); err != nil {
			return err
		}
	}
	return nil
}

// lockKey is the advisory lock for migrations of all tables of one schema, which share schemaTable.
func lockKey(table tableName) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("tilefence migrations " + table.schema)) // a hash never fails to write
	return int64(h.Sum64())                                        //nolint:gosec // only equality counts
}

// loadMigrations returns the embedded migrations; their names sort by version.
func loadMigrations(table tableName, world string) ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	migrations := make([]migration, len(names))
	for i, name := range names {
		b, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("pgfence: migration %s has no number: %w", name, err)
		}
		migrations[i] = migration{version, strings.ReplaceAll(bind(string(b), table), "{name}", world)}
	}
	return migrations, nil
}
