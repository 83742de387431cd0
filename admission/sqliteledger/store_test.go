package sqliteledger_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/admissiontest"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string) *sqliteledger.Store {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func TestMemory(t *testing.T) {
	admissiontest.Run(t, func(t *testing.T) admission.Store { return open(t, sqliteledger.Memory) })
}

func TestFile(t *testing.T) {
	admissiontest.Run(t, func(t *testing.T) admission.Store {
		return open(t, filepath.Join(t.TempDir(), "a ledger?#%20.db"))
	})
}

// TestManyStoresOnOneFile: processes share a ledger as goroutines do.
func TestManyStoresOnOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	ledgers := make([]*admission.AdmissionLedger, 4)
	var wg sync.WaitGroup
	for i := range ledgers {
		wg.Go(func() { // the tables are made by one of them
			store, err := sqliteledger.Open(t.Context(), path)
			if assert.NoError(t, err) {
				t.Cleanup(func() { assert.NoError(t, store.Close()) })
				ledgers[i], err = admission.New(store, nil)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	require.NoError(t, ledgers[0].Credit(t.Context(), "ann", "card", 20, "deck"))
	var spent sync.Map
	for i, ledger := range ledgers {
		wg.Go(func() {
			for n := range 20 {
				id := string(rune('a' + (n+i)%30)) // every action by several
				art, err := ledger.Admit(t.Context(),
					admission.Action{ID: id, Actor: "ann", Asset: "card", Cost: 1, Tile: 7})
				assert.NoError(t, err)
				spent.Store(id, art.Spent())
			}
		})
	}
	wg.Wait()
	var sum admission.Amount
	for _, amount := range spent.Range {
		sum += amount.(admission.Amount)
	}
	account, err := ledgers[1].Balance(t.Context(), "ann", "card")
	require.NoError(t, err)
	assert.Equal(t, admission.Amount(20), sum+account.Balance)
	assert.Zero(t, account.Balance)
}

func TestOpen(t *testing.T) {
	_, err := sqliteledger.Open(t.Context(), "")
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = sqliteledger.Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "directory"))
	require.Error(t, err)

	path := filepath.Join(t.TempDir(), "ledger.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("PRAGMA user_version = 99")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = sqliteledger.Open(t.Context(), path)
	require.ErrorContains(t, err, "schema 99")
}

// TestLockedDatabase: another process that does not let go is an error, and changes nothing.
func TestLockedDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	store := open(t, path)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	g := admission.Credit{ID: "deck", Owner: "ann", Asset: "card", Amount: 1, At: time.Now()}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, store.Credit(short, g), fence.ErrNotApplied)
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, store.Credit(t.Context(), g))
}

func TestWorldOfAFile(t *testing.T) {
	var path string
	fencetest.RunWorld(t, true, func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			path = filepath.Join(t.TempDir(), "ledger.db")
		}
		store, err := sqliteledger.Open(t.Context(), path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	})
}
