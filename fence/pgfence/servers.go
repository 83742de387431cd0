package pgfence

import (
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

// metAt is where a connection keeps when it was first used.
const metAt = "tilefence.met"

// meet notes when a connection is used for the first time.
func (s *servers) meet(conn *pgxpool.Conn) {
	if notes := conn.Conn().PgConn().CustomData(); notes[metAt] == nil {
		notes[metAt] = time.Now()
	}
}

// leave gives up all connections of the pool, idle ones at once, because this one takes no writes. It reports whether
// another attempt may find a server that does. One that is older than the last change is closed when it is released.
func (s *servers) leave(pool *pgxpool.Pool, conn *pgxpool.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	met, _ := conn.Conn().PgConn().CustomData()[metAt].(time.Time)
	switch {
	case met.Before(s.left):
		return true
	case time.Since(s.left) < leaveEvery:
		return false
	}
	s.left = time.Now()
	pool.Reset()
	return true
}
