package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
)

// Two owners of one tile: the second takes over, and the first one's next write is refused with the
// address of its successor.
func Example() {
	ctx := context.Background()
	authority, store := memfence.NewAuthority(), memfence.New()
	const tile fence.TileID = 0x85283083fffffff

	a, err := authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "a:7000", ID: fence.NewClaimID()})
	if err != nil {
		fmt.Println(err)
		return
	}
	commit := func(g fence.Grant, prev fence.Position, install bool) (fence.Receipt, error) {
		return store.Commit(ctx, fence.Commit{Tile: tile, Epoch: g.Epoch, Contact: g.Contact, Prev: prev,
			Payload: []byte("boom"), Install: install})
	}
	first, err := commit(a, fence.Position{}, true)
	fmt.Println(first.Position.Epoch, first.Position.Seq, err)

	b, err := authority.Promote(ctx, fence.Claim{Tile: tile, Contact: "b:7000", ID: fence.NewClaimID(),
		Expected: a.Epoch})
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := commit(b, first.Position, true)
	fmt.Println(second.Position.Epoch, second.Position.Seq, err)

	_, err = commit(a, first.Position, false)
	var refused *fence.RefusedError
	if errors.Is(err, fence.ErrStale) && errors.As(err, &refused) {
		fmt.Println("go to", refused.Current.Contact)
	}
	// Output:
	// 1 1 <nil>
	// 2 2 <nil>
	// go to b:7000
}
