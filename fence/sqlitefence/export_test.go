package sqlitefence

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// SynchronousLevel returns SQLite's number for the level the connection runs at.
func (a *Authority) SynchronousLevel(t *testing.T) int {
	t.Helper()
	var level int
	require.NoError(t, a.own.db.Read(t.Context(), "look", 0, func(tx *sqlitedb.Tx) error {
		_, err := tx.Row("PRAGMA synchronous", nil, &level)
		return err
	}))
	return level
}
