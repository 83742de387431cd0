//go:build linux

package devstack_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestStandbyLacksWhatCameAfterTheCut: a standby has what the primary committed before its link was cut, and takes its
// place without the rest. The server that failed can follow in turn. Clients of one URL find the one that takes writes.
func TestStandbyLacksWhatCameAfterTheCut(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Dir: openDir(t), NoSync: true,
		Parts: []devstack.Part{devstack.Postgres}})
	pair, err := stack.PostgresPair()
	require.NoError(t, err)
	pool, err := pgxpool.New(t.Context(), pair.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE TABLE writes (n int)")
	for round, name := range []string{"postgres", "postgres-2", "postgres"} {
		require.Equal(t, name, pair.Primary().Name())
		exec("INSERT INTO writes VALUES (1)")
		require.NoError(t, pair.Follow(t.Context()))
		exec("INSERT INTO writes VALUES (2)")
		require.NoError(t, pair.Cut(t.Context()))
		exec("INSERT INTO writes VALUES (3)")
		require.NoError(t, pair.Promote(t.Context()))
		pool.Reset() // its connections are to the server that was killed
		var has []int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT array_agg(n ORDER BY n) FROM writes").Scan(&has))
		require.Len(t, has, 2*(round+1), "%v", has)
		require.NotContains(t, has, 3)
	}
}
