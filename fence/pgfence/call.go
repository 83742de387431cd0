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

type statement struct {
	sql  string
	args []any
}

// call is what one method asks of the database: some conditional writes to the tile's row, then the row.
// However often it is presented it takes effect once, so presenting it again is also how to find out
// what became of it.
type call struct {
	op     string
	tile   fence.TileID
	writes []statement
}

// failure is an attempt at a call that brought no row.
type failure struct {
	cause   error
	unknown bool // the writes may have taken effect, or may yet
	again   bool // the connection was at fault; another one may do better
}

// settle presents a call until the row it leaves permits a judgement. It loops only when others moved
// the row during the round trip, so somebody always gets ahead.
func (a *Authority) settle(ctx context.Context, c call, judge func(row fence.Grant) error) error {
	for {
		row, err := a.present(ctx, c)
		if err != nil {
			return err
		}
		if err := judge(row); !errors.Is(err, verdict.ErrAgain) {
			return err
		}
	}
}

// present carries out a call and returns the row it left (epoch zero for none), or a *fence.StoreError.
// When the connection is lost on the way, it does so once more on one that is known to work.
func (a *Authority) present(ctx context.Context, c call) (fence.Grant, error) {
	row, fail := a.attempt(ctx, c, a.pool.Acquire)
	if fail != nil && fail.again && ctx.Err() == nil {
		first := fail
		if row, fail = a.attempt(ctx, c, a.acquireLive); fail != nil {
			// Whatever became of the second copy says nothing of the first.
			fail.unknown = fail.unknown || first.unknown
			fail.cause = fmt.Errorf("%w; presented again: %w", first.cause, fail.cause)
		}
	}
	if fail == nil {
		return row, nil
	}
	// A call without writes has no outcome that could be unknown.
	outcome := fence.ErrNotApplied
	if fail.unknown && len(c.writes) > 0 {
		outcome = fence.ErrUnknownOutcome
	}
	return fence.Grant{}, &fence.StoreError{Op: c.op, Tile: c.tile, Outcome: outcome, Err: a.hint(fail.cause)}
}

// attempt carries out a call on one connection.
func (a *Authority) attempt(ctx context.Context, c call, acquire func(context.Context) (*pgxpool.Conn, error)) (fence.Grant, *failure) {
	conn, err := acquire(ctx)
	if err != nil {
		return fence.Grant{}, &failure{cause: err}
	}
	defer conn.Release()
	row, err := a.roundTrip(ctx, conn, c)
	if err != nil {
		return fence.Grant{}, classify(err)
	}
	return row, nil
}

// roundTrip sends the writes and the read in one batch, which the server runs as one transaction, giving
// each statement a snapshot of its own: the read sees what the writes met, not what was there before.
// The transaction has committed only when Close says so, after all results were read.
func (a *Authority) roundTrip(ctx context.Context, conn *pgxpool.Conn, c call) (fence.Grant, error) {
	var batch pgx.Batch
	for _, w := range c.writes {
		batch.Queue(w.sql, w.args...)
	}
	var row fence.Grant
	batch.Queue(a.sql.read, int64(c.tile)).QueryRow(func(r pgx.Row) (err error) {
		row, err = scan(r)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return fence.Grant{}, err
	}
	return row, nil
}

// scan reads a row of tiles.
func scan(from pgx.Row) (fence.Grant, error) {
	var tile, epoch int64
	var contact *string
	var minted time.Time
	var row fence.Grant
	if err := from.Scan(&tile, &epoch, &contact, (*[16]byte)(&row.ID), &minted, &row.Mints); err != nil {
		return fence.Grant{}, err
	}
	row.Tile, row.Epoch, row.Minted = fence.TileID(tile), fence.Epoch(epoch), minted.UnixMilli()
	if contact != nil {
		row.Contact = *contact
	}
	return row, nil
}

// acquireLive returns a connection that has just answered. When a server restarts, all idle connections
// of a pool are dead, and the next one is as likely to be as the last.
func (a *Authority) acquireLive(ctx context.Context) (*pgxpool.Conn, error) {
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
	codeCompletionUnknown = "40003"
	codeUndefinedTable    = "42P01"
	codeNotNullViolation  = "23502"
	classConnection       = "08"
	classSystem           = "58"
	classInternal         = "XX"
)

// classify judges what the error of a round trip says about the transaction. Only what is known to have
// had no effect is called that.
//
// An error of severity ERROR rolls the transaction back, also when it comes from the commit itself. The
// exceptions are those with which a pooler or a coordinator in front of the database reports that it has
// lost the database. FATAL is the end of a session, which may come after the commit.
func classify(err error) *failure {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR" {
		switch class := pgErr.Code[:min(2, len(pgErr.Code))]; {
		case class == classConnection, class == classSystem, class == classInternal, pgErr.Code == codeCompletionUnknown:
			return &failure{cause: err, unknown: true, again: true}
		}
		return &failure{cause: err}
	}
	return &failure{cause: err, unknown: !pgconn.SafeToRetry(err), again: true}
}

// hint adds to an error what the user can do about it.
func (a *Authority) hint(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.Code {
	case codeUndefinedTable:
		return fmt.Errorf("%w (Migrate creates table %s)", err, a.table)
	case codeNotNullViolation:
		return fmt.Errorf("%w (a tile without a record can only be claimed where transactions are read committed by default "+
			"and table %s has its row)", err, a.table.sibling(a.table.name+floorSuffix))
	}
	return err
}
