package pgfence_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
)

// readOnlyConns has every connection of a pool, all of which it opens, turn read-only, as those are that a switch-over
// leaves open.
func readOnlyConns(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var conns []*pgxpool.Conn
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "SET default_transaction_read_only = on")
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
}

// After a switch-over that leaves sessions open no call fails, since new connections find the server that takes writes,
// and no old one stays in the pool.
func TestSwitchOverLeavesSessionsOpen(t *testing.T) {
	eachCall(t, func(t *testing.T, s *scene, step step) {
		pool := newPool(t, s.proxy.URL+"&target_session_attrs=read-write")
		a, err := pgfence.New(pool, nil)
		require.NoError(t, err)
		s.a = a
		readOnlyConns(t, pool)
		var calls sync.WaitGroup
		for i := range 64 {
			calls.Go(func() {
				_, err := a.Claim(t.Context(), claimOf(fence.TileID(i+1), "a:1"))
				assert.NoError(t, err)
			})
		}
		calls.Wait()
		g, err := step.call(t.Context())
		require.NoError(t, err)
		require.Equal(t, step.after, g)
		for range pool.Config().MaxConns {
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			defer conn.Release()
			require.Equal(t, "off", conn.Conn().PgConn().ParameterStatus("default_transaction_read_only"))
		}
	})
}

// While no server takes writes, calls fail on the connections that there are: they do not make new ones each.
func TestNoServerTakesWrites(t *testing.T) {
	var mu sync.Mutex
	made := 0
	s := newScene(t, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		c.ConnConfig.AfterNetConnect = func(
			_ context.Context, _ *pgconn.Config, conn net.Conn,
		) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			made++
			return conn, nil
		}
	})
	for i := range 100 {
		_, err := s.a.Claim(t.Context(), claimOf(fence.TileID(i+1), "a:1"))
		require.ErrorIs(t, err, fence.ErrNotApplied)
		require.ErrorContains(t, err, "target_session_attrs=read-write")
	}
	mu.Lock()
	defer mu.Unlock()
	require.Less(t, made, 20)
	_, err := s.a.Lookup(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrNeverOwned, "the server is no standby: its rows are current")
}

// A standby does not answer for the primary: what it has may be old, also of a lookup in a set.
func TestStandbyIsNotBelieved(t *testing.T) {
	s := newScene(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	held, err := s.a.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)
	s.proxy.plan(accident{kind: demoted})
	g, err := s.a.Lookup(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, held, g)
	require.Zero(t, s.proxy.left())

	s.proxy.plan(accident{kind: demoted}, accident{kind: demoted})
	_, err = s.a.Lookup(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorContains(t, err, "standby")
}

// What a code of the server says about the call, and about its connection.
func TestClassify(t *testing.T) {
	for _, test := range []struct {
		code, severity string
		want           string
	}{
		{"25006", "ERROR", "refused read-only"},
		{"55P03", "ERROR", "refused locked"},
		{"40001", "ERROR", "refused"},
		{"40P01", "ERROR", "refused"},
		{"57014", "ERROR", "refused"},
		{"53100", "ERROR", "refused"},
		{"42501", "ERROR", "refused"},
		{"40003", "ERROR", "unknown again"},
		{"08006", "ERROR", "unknown again"},
		{"08P01", "ERROR", "unknown again"},
		{"58030", "ERROR", "unknown again"},
		{"XX000", "ERROR", "unknown again"},
		{"57P01", "FATAL", "unknown again"},
		{"57P02", "FATAL", "unknown again"},
		{"57P03", "FATAL", "unknown again"},
		{"57P05", "FATAL", "unknown again"},
		{"53300", "FATAL", "unknown again"},
		{"25006", "FATAL", "unknown again"},
	} {
		err := fmt.Errorf("wrapped: %w",
			&pgconn.PgError{Code: test.code, Severity: "?", SeverityUnlocalized: test.severity})
		require.Equal(t, test.want, pgfence.Classify(err), test.code)
	}
}
