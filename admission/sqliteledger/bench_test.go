package sqliteledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
)

// BenchmarkAdmit compares an admission with the bare transaction beneath it: one insert, one update.
func BenchmarkAdmit(b *testing.B) {
	b.Run("ledger/durable", func(b *testing.B) {
		store := open(b, filepath.Join(b.TempDir(), "ledger.db"))
		ledger, err := admission.New(store, nil)
		require.NoError(b, err)
		require.NoError(b, ledger.Credit(b.Context(), "ann", "card", admission.MaxAmount, "all"))
		for b.Loop() {
			_, err := ledger.Admit(b.Context(),
				admission.Action{ID: admission.NewActionID(), Actor: "ann", Asset: "card", Cost: 1, Tile: 7,
					Body: make([]byte, 200)})
			require.NoError(b, err)
		}
	})
	b.Run("bare/durable", func(b *testing.B) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		require.NoError(b, err)
		defer func() { require.NoError(b, db.Close()) }()
		bare(b, db)
	})
	b.Run("ledger/memory", func(b *testing.B) {
		ledger, err := admission.New(open(b, sqliteledger.Memory), nil)
		require.NoError(b, err)
		require.NoError(b, ledger.Credit(b.Context(), "ann", "card", admission.MaxAmount, "all"))
		for b.Loop() {
			_, err := ledger.Admit(b.Context(),
				admission.Action{ID: admission.NewActionID(), Actor: "ann", Asset: "card", Cost: 1, Tile: 7,
					Body: make([]byte, 200)})
			require.NoError(b, err)
		}
	})
}

func bare(b *testing.B, db *sql.DB) {
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	require.NoError(b, err)
	defer func() { require.NoError(b, conn.Close()) }()
	exec := func(query string, args ...any) {
		_, err := conn.ExecContext(ctx, query, args...)
		require.NoError(b, err)
	}
	exec("CREATE TABLE accounts (owner TEXT, asset TEXT, balance INTEGER, PRIMARY KEY (owner, asset)) WITHOUT ROWID")
	exec("CREATE TABLE artifacts (id TEXT PRIMARY KEY, actor TEXT, asset TEXT, cost INTEGER, body BLOB, at INTEGER)")
	exec("INSERT INTO accounts VALUES ('ann', 'card', 1000000000)")
	n := 0
	for b.Loop() {
		n++
		exec("BEGIN IMMEDIATE")
		exec("INSERT INTO artifacts VALUES (?, 'ann', 'card', 1, ?, ?)", fmt.Sprintf("%026d", n), make([]byte, 200),
			time.Now().UnixMilli())
		exec("UPDATE accounts SET balance = balance - 1 WHERE owner = 'ann' AND asset = 'card'")
		exec("COMMIT")
	}
}
