package pgfence

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
)

// keeping are the modes of pgx that leave something in a session for a later round trip. A pooler whose sessions are
// those of transactions gives that round trip another session.
var keeping = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec}

// poolers is whether the way to the database was found to be direct, or of a mode that does not matter.
type poolers struct{ passable atomic.Bool }

// check refuses, with a *fence.SettingError, a pool whose connections end at a pooler and keep statements there. The
// process that serves a session then is another than the one that the connection was promised: a pooler makes that
// number up. It asks until it has had an answer once.
func (p *poolers) check(ctx context.Context, conn *pgxpool.Conn) error {
	if p.passable.Load() {
		return nil
	}
	mode := conn.Conn().Config().DefaultQueryExecMode
	if slices.Contains(keeping, mode) {
		var pid uint32
		row := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol)
		if err := row.Scan(&pid); err != nil {
			return nil //nolint:nilerr // the call itself finds out what is wrong
		}
		if pid != conn.Conn().PgConn().PID() {
			return poolerRefused(mode)
		}
	}
	p.passable.Store(true)
	return nil
}

func poolerRefused(mode pgx.QueryExecMode) error {
	return &fence.SettingError{Node: "PostgreSQL", Setting: "default_query_exec_mode",
		Value: strings.ReplaceAll(mode.String(), " ", "_"), // as in a URL
		Detail: "there is a pooler, as PgBouncer, before the database, and prepared statements stay in sessions that " +
			"other connections are given; add default_query_exec_mode=cache_describe to the URL, or connect without " +
			"the pooler"}
}

// statementLost reports whether an error says that a prepared statement was of another session than the call.
func statementLost(err *pgconn.PgError) bool {
	return err.Code == codeStatementExists || err.Code == codeStatementUnknown ||
		err.Code == codeProtocol && strings.Contains(err.Message, "prepared statement")
}
