package pgfence

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// leaveEvery is how often all connections of a pool are given up at most, because they led to a server that takes no
// writes. If no server does, calls fail on the connections that there are, and do not make two new ones each.
const leaveEvery = time.Second

// servers is which of a pool's connections may lead to a server that has changed its part since: a switch-over that
// leaves sessions open has them answer as a standby for as long as they last, although new ones would find the primary.
type servers struct {
	mu   sync.Mutex
	left time.Time // when all connections were last given up
}

// metAt is where a connection keeps when the call that used it first asked for it.
const metAt = "tilefence.met"

// meet notes that a call which asked for a connection at that time has been given this one. The connection may be
// older, so one that was handed out just before the others were given up counts as one of them.
func (s *servers) meet(conn *pgxpool.Conn, asked time.Time) {
	if notes := conn.Conn().PgConn().CustomData(); notes[metAt] == nil {
		notes[metAt] = asked
	}
}

// leave closes the connection, which takes no writes, and gives up all others of the pool. It reports whether another
// attempt may find a server that does; if not, the connection stays.
func (s *servers) leave(ctx context.Context, pool *pgxpool.Pool, conn *pgxpool.Conn) bool {
	s.mu.Lock()
	met, _ := conn.Conn().PgConn().CustomData()[metAt].(time.Time)
	old, again := met.Before(s.left), time.Since(s.left) >= leaveEvery
	if !old && again {
		s.left = time.Now()
		pool.Reset()
	}
	s.mu.Unlock()
	if old || again {
		_ = conn.Conn().Close(ctx) // the pool drops it
	}
	return old || again
}
