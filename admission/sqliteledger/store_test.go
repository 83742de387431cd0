package sqliteledger_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/admissiontest"
	"github.com/tilefence/tilefence/admission/sqliteledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string, cfg *sqliteledger.Config) *sqliteledger.Store {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), path, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func TestMemory(t *testing.T) {
	admissiontest.Run(t, func(t *testing.T) admission.Store { return open(t, sqliteledger.Memory, nil) })
}

func TestFile(t *testing.T) {
	admissiontest.Run(t, func(t *testing.T) admission.Store {
		return open(t, filepath.Join(t.TempDir(), "a ledger?#%20.db"), &sqliteledger.Config{Relaxed: true})
	})
}
