package pgfence_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// startPgBouncer starts a PgBouncer before the database of a URL, which gives sessions to transactions, and returns a
// URL that leads through it.
func startPgBouncer(t *testing.T, direct string) string {
	t.Helper()
	stacktest.RequireFullTest(t)
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	require.NoError(t, err, "`make install-tools` installs it")
	u, err := url.Parse(direct)
	require.NoError(t, err)
	password, _ := u.User.Password()
	dir, err := os.MkdirTemp("", "pgbouncer")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	for range 10 { // another process may take the port first
		port := stacktest.FreePort(t)
		file := filepath.Join(dir, "pgbouncer.ini")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[databases]\n* = host=%s port=%s user=%s password=%s\n"+
			"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\n"+
			"pool_mode = transaction\ndefault_pool_size = 8\nignore_startup_parameters = extra_float_digits\n",
			u.Hostname(), u.Port(), u.User.Username(), password, port), 0o600))
		args := []string{"-q", file}
		if os.Getuid() == 0 { // which it refuses to be
			args = append(args, "-u", "nobody")
		}
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }()
		address := fmt.Sprint("127.0.0.1:", port)
		if listens(address, ended) {
			t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGQUIT); <-ended })
			u.Host = address
			return u.String()
		}
		_ = cmd.Process.Kill()
		<-ended
	}
	require.FailNow(t, "PgBouncer does not listen")
	return ""
}

// listens reports whether a server takes connections before it ends.
func listens(address string, ended chan struct{}) bool {
	for range 500 {
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if conn, err := (&net.Dialer{}).Dial("tcp", address); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

// TestPgBouncer: behind a pooler whose sessions are those of transactions, pgx's default mode, which prepares
// statements in sessions, is refused at once and in words; the others pass.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	direct := stacktest.PostgresDB(t)
	through := startPgBouncer(t, direct)
	name := stacktest.UniqueName(t)
	pooled := func(mode pgx.QueryExecMode) *pgfence.Authority {
		pool := newPool(t, through, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		a, err := pgfence.New(pool, &pgfence.Config{Table: name})
		require.NoError(t, err)
		return a
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec} {
		a := pooled(mode)
		err := a.Migrate(t.Context())
		require.ErrorIs(t, err, fence.ErrSetting, "%v", mode)
		require.ErrorContains(t, err, "default_query_exec_mode=cache_describe")
		_, err = a.Claim(t.Context(), claimOf(tile, "host:1"))
		require.ErrorIs(t, err, fence.ErrSetting, "%v", mode)
		require.ErrorIs(t, err, fence.ErrNotApplied)
	}
	for i, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		a := pooled(mode)
		require.NoError(t, a.Migrate(t.Context()), "%v", mode)
		var minted atomic.Int64
		var wg sync.WaitGroup
		for n := range 200 {
			wg.Go(func() {
				_, err := a.Claim(t.Context(), claimOf(tile+fence.TileID(i*1000+n), "host:1"))
				if assert.NoError(t, err, "%v", mode) {
					minted.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 200, minted.Load(), "%v", mode)
	}
	pool := newPool(t, through+"&default_query_exec_mode=cache_describe")
	fencetest.RunAuthority(t, func(t *testing.T) fence.Authority { return newAuthority(t, pool) })
}
