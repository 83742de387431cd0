package sqlite_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqlite"
	"github.com/tilefence/tilefence/stream"
)

func Example() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, ":memory:", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	ledger, err := admission.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := ledger.Grant(ctx, "ann", "gold", 10, "welcome/ann"); err != nil {
		fmt.Println(err)
		return
	}
	action := admission.Action{ID: "a1", Actor: "ann", Asset: "gold", Cost: 3, Tile: 0x85283083fffffff}
	for range 2 { // the retry spends nothing
		if _, err := ledger.Admit(ctx, action); err != nil {
			fmt.Println(err)
			return
		}
	}
	art, err := ledger.Resolve(ctx, "a1", stream.Applied)
	account, balanceErr := ledger.Balance(ctx, "ann", "gold")
	fmt.Println(art.Outcome, account.Balance, err, balanceErr)
	// Output: applied 7 <nil> <nil>
}
