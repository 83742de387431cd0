package sqliteledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
)

func Example() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	for run := 1; run <= 2; run++ { // the second run finds what the first has written
		store, err := sqliteledger.Open(ctx, filepath.Join(dir, "ledger.db"))
		if err != nil {
			panic(err)
		}
		ledger, err := admission.New(store, nil)
		if err != nil {
			panic(err)
		}
		if err := ledger.Credit(ctx, "ann", "gold", 10, fmt.Sprintf("wages-%d/ann", run)); err != nil {
			panic(err)
		}
		account, err := ledger.Balance(ctx, "ann", "gold")
		if err != nil {
			panic(err)
		}
		fmt.Println(account.Balance)
		if err := store.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// 10
	// 20
}
