package pgfence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// failed is the error of a call that brought no row.
func failed(c *verdict.Call, outcome, cause error) error {
	return &fence.StoreError{Op: c.String(), Tile: c.Tile, Outcome: outcome, Err: cause}
}

// failure is an attempt at a transaction that brought no rows.
type failure struct {
	cause   error
	unknown bool // the writes may have taken effect, or may yet
	again   bool // the connection failed; another one may work
	refused bool // the server has rolled the transaction back

	locked   bool // refused: another transaction has kept a row locked
	readOnly bool // refused: the connection leads to a server that takes no writes, or to a standby
}

// outcome is what a failure says of a call's writes. A lookup has none whose outcome could be unknown.
func (f *failure) outcome(k verdict.Kind) error {
	if f.unknown && k != verdict.Lookup {
		return fence.ErrUnknownOutcome
	}
	return fence.ErrNotApplied
}

// alone carries out a call in a transaction of its own and returns the row it left (epoch zero for none),
// or a *fence.StoreError. If its row is locked, it goes on aside.
func (a *authority) alone(ctx context.Context, c *verdict.Call) (row fence.Grant, err error) {
	fail := a.single(ctx, c, a.lockWait, &row)
	if fail != nil && fail.locked {
		return a.aside(ctx, c)
	}
	return row, a.failed(c, fail)
}

// aside carries out a call whose row another transaction has locked. Few connections wait for locked rows, so that
// no number of them takes the pool from other tiles.
func (a *authority) aside(ctx context.Context, c *verdict.Call) (row fence.Grant, err error) {
	deadline := time.Now().Add(a.asideWait)
	timeout := time.NewTimer(a.asideWait)
	defer timeout.Stop()
	select {
	case a.asides <- struct{}{}:
		defer func() { <-a.asides }()
	case <-timeout.C:
		return row, a.failed(c, &failure{cause: errLocked})
	case <-ctx.Done():
		return row, a.failed(c, &failure{cause: ended(ctx)})
	}
	return row, a.failed(c, a.single(ctx, c, max(time.Until(deadline), time.Millisecond), &row))
}

// failed is the error of a call whose transaction failed; nil for none.
func (a *authority) failed(c *verdict.Call, f *failure) error {
	if f == nil {
		return nil
	}
	return failed(c, f.outcome(c.Kind), a.hint(f.cause))
}

// single carries out the transaction of one call, which leaves its row in row (epoch zero for none).
func (a *authority) single(ctx context.Context, c *verdict.Call, lockWait time.Duration, row *fence.Grant) *failure {
	fail := a.transact(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return a.roundTrip(ctx, conn, a.one(c, lockWait, row))
	})
	if fail != nil {
		*row = fence.Grant{}
	}
	return fail
}

// one is the transaction of one call, which leaves its row in row.
func (a *authority) one(c *verdict.Call, lockWait time.Duration, row *fence.Grant) *transaction {
	*row = fence.Grant{} // of an earlier attempt
	return &transaction{
		writes:  a.writes(c, lockWait),
		read:    statement{sql: a.sql.read, args: []any{int64(c.Tile)}},
		row:     func(g fence.Grant) { *row = g },
		primary: c.Kind == verdict.Lookup, // no write shows that the server is not a standby
	}
}

type statement struct {
	sql    string
	args   []any
	raises bool // the rows it returns are just above the floor
}

// transaction is some writes and a read of the rows they met.
type transaction struct {
	settings *statement // first; its row is ignored
	writes   []statement
	read     statement
	row      func(fence.Grant) // receives each row returned; a later one of the same tile takes the earlier one's place
	primary  bool              // the answer of a standby, whose rows may be old, is none
}

// transact calls do, which carries out one transaction, with a connection. If the connection is lost, or leads to a
// server that takes no writes, it calls do once more, with another one.
func (a *authority) transact(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) *failure {
	fail := a.attempt(ctx, do, a.pool.Acquire)
	if fail == nil || !fail.again || ctx.Err() != nil {
		return fail
	}
	first := fail
	if fail = a.attempt(ctx, do, a.acquireLive); fail != nil {
		// The outcome of the second copy says nothing about the first.
		fail.unknown = fail.unknown || first.unknown
		fail.cause = fmt.Errorf("%w; presented again: %w", first.cause, fail.cause)
	}
	return fail
}

// attempt carries out a transaction on one connection. One that has failed is closed.
func (a *authority) attempt(
	ctx context.Context, do func(context.Context, *pgxpool.Conn) error,
	acquire func(context.Context) (*pgxpool.Conn, error),
) *failure {
	asked := time.Now()
	conn, err := acquire(ctx)
	if err != nil {
		return &failure{cause: err}
	}
	defer conn.Release()
	a.servers.meet(conn, asked)
	if err := a.poolers.check(ctx, conn); err != nil {
		return &failure{cause: err}
	}
	if err = do(ctx, conn); err == nil {
		return nil
	}
	fail := classify(err)
	switch {
	case fail.readOnly:
		fail.again = a.servers.leave(ctx, a.pool, conn)
	case fail.again:
		_ = conn.Conn().Close(ctx) // the error says more; the pool drops it
	}
	return fail
}

// roundTrip sends the writes and the read in one batch, which the server runs as one transaction, giving
// each statement a snapshot of its own: the read sees what the writes met, not what was there before. A row
// that a write returns is what the read would have found, because the transaction has locked it.
// The transaction has committed only when Close says so, after all results were read.
func (a *authority) roundTrip(ctx context.Context, conn *pgxpool.Conn, t *transaction) error {
	var batch pgx.Batch
	if t.settings != nil {
		batch.Queue(t.settings.sql, t.settings.args...)
	}
	queue := func(s *statement) {
		batch.Queue(s.sql, s.args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				g, err := scan(rows)
				if err != nil {
					return err
				}
				if t.row(g); s.raises {
					a.learnFloor(g.Epoch)
				}
			}
			return rows.Err()
		})
	}
	for i := range t.writes {
		queue(&t.writes[i])
	}
	queue(&t.read)
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	// The server reports it with every answer in which it changes.
	if t.primary && conn.Conn().PgConn().ParameterStatus("in_hot_standby") == "on" {
		return errStandby
	}
	return nil
}

// scan reads a row of tiles, and more columns of it.
func scan(from pgx.Row, more ...any) (fence.Grant, error) {
	var tile, epoch int64
	var contact *string
	var minted time.Time
	var row fence.Grant
	dest := append([]any{&tile, &epoch, &contact, (*[16]byte)(&row.ID), &minted, &row.Mints}, more...)
	if err := from.Scan(dest...); err != nil {
		return fence.Grant{}, err
	}
	row.Tile, row.Epoch, row.Minted = fence.TileID(tile), fence.Epoch(epoch), minted.UTC()
	if contact != nil {
		row.Contact = *contact
	}
	return row, nil
}

// acquireLive returns a connection that has just answered. When a server restarts, all idle connections
// of a pool are dead, and the next one is as likely to be as the last.
func (a *authority) acquireLive(ctx context.Context) (*pgxpool.Conn, error) {
	var lost error
	for range a.pool.Stat().MaxConns() + 1 {
		conn, err := a.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if lost = conn.Ping(ctx); lost == nil {
			return conn, nil
		}
		conn.Release() // the pool drops a connection that has failed
	}
	return nil, lost
}

// Codes of PostgreSQL's errors, https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	codeReadOnly          = "25006" // a standby, or a session whose transactions are read-only
	codeLocked            = "55P03"
	codeCompletionUnknown = "40003"
	codeTooMany           = "53300"
	codePassword          = "28P01"
	codeUser              = "28000" // unknown, or not admitted
	codeDatabase          = "3D000"
	codeUndefinedTable    = "42P01"
	codeNotNullViolation  = "23502"
	codeProtocol          = "08P01"
	codeStatementExists   = "42P05"
	codeStatementUnknown  = "26000"
	classConnection       = "08"
	classSystem           = "58"
	classInternal         = "XX"
)

// errStandby means that a standby has answered. Its rows may be old.
var errStandby = errors.New("the server is a standby, whose rows may be old: connect to the primary, as with " +
	"target_session_attrs=read-write")

// errLocked means that a call has not had its turn to wait for its row, because other calls wait for theirs.
var errLocked = errors.New("another transaction keeps the tile's row locked, and more rows: pg_stat_activity and " +
	"pg_locks say which")

// classify derives a transaction's outcome from the error of its round trip. What is not known to have had no
// effect is unknown.
//
// An error of severity ERROR rolls the transaction back, also when it comes from the commit itself. The
// exceptions are those with which a pooler or a coordinator in front of the database reports that it has
// lost the database. FATAL is the end of a session, which may come after the commit.
func classify(err error) *failure {
	if errors.Is(err, errStandby) {
		return &failure{cause: err, refused: true, readOnly: true}
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.SeverityUnlocalized == "ERROR" {
		switch class := pgErr.Code[:min(2, len(pgErr.Code))]; {
		case class == classConnection, class == classSystem, class == classInternal,
			pgErr.Code == codeCompletionUnknown:
			return &failure{cause: err, unknown: true, again: true}
		}
		return &failure{cause: err, refused: true, locked: pgErr.Code == codeLocked,
			readOnly: pgErr.Code == codeReadOnly}
	}
	return &failure{cause: err, unknown: !pgconn.SafeToRetry(err), again: true}
}

// hint adds to an error what the user can do about it.
func (a *authority) hint(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	if statementLost(pgErr) {
		return errors.Join(poolerRefused(a.pool.Config().ConnConfig.DefaultQueryExecMode), err)
	}
	switch pgErr.Code {
	case codeUndefinedTable:
		return fmt.Errorf("%w (Migrate creates table %s)", err, a.table)
	case codeLocked:
		return fmt.Errorf("%w (another session keeps the tile's row locked: see pg_stat_activity, pg_locks)", err)
	case codeReadOnly:
		return fmt.Errorf("%w (connect to the primary, as with target_session_attrs=read-write)", err)
	case codeTooMany:
		return fmt.Errorf("%w (raise max_connections, or lower the pools of the processes)", err)
	case codePassword, codeUser:
		return fmt.Errorf("%w (correct the user and the password in the URL, or let pg_hba.conf admit the user)", err)
	case codeDatabase:
		return fmt.Errorf("%w (create the database, or name another in the URL)", err)
	case codeNotNullViolation:
		return fmt.Errorf("%w (claiming a tile without a record needs read committed as the default isolation, "+
			"and the row of table %s)", err, a.table.sibling(a.table.name+floorSuffix))
	}
	return err
}
