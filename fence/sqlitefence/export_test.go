package sqlitefence

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// SynchronousLevel returns SQLite's number for the level the connection runs at.
func (a *Authority) SynchronousLevel(t *testing.T) int {
	t.Helper()
	var level int
	require.NoError(t, a.db.conn.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&level))
	return level
}
