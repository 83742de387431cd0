package sqliteledger_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

func TestWorldOfAFile(t *testing.T) {
	var path string
	fencetest.RunWorld(t, true, func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			path = filepath.Join(t.TempDir(), "ledger.db")
		}
		store, err := sqliteledger.Open(t.Context(), path, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	})
}
