package sqlitecheckpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// Damage changes a byte of a stored blob, behind the store's back: query selects it, and update writes it with the
// blob as its first argument.
func (st *Store) Damage(t *testing.T, query, update string, args ...any) {
	t.Helper()
	require.NoError(t, st.db.Write(t.Context(), "damage", 0, func(tx *sqlitedb.Tx) error {
		var blob []byte
		found, err := tx.Row(query, args, &blob)
		require.NoError(t, err)
		require.True(t, found)
		blob[len(blob)/2] ^= 1
		_, err = tx.Exec(update, append([]any{blob}, args...)...)
		return err
	}))
}
