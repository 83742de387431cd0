package sqlitefence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/sqlitefence"
)

// A tile is claimed, given up, and claimed by another process. The second owner has a higher epoch, so that
// whatever the first one may still send is refused.
func ExampleOpen() {
	ctx := context.Background()
	authority, err := sqlitefence.Open(ctx, sqlitefence.Memory, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = authority.Close() }()
	const tile fence.TileID = 0x85283473fffffff

	first, err := authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "host-a:7000", ID: fence.NewClaimID()})
	fmt.Println(first.Epoch, err)
	fmt.Println(authority.Release(ctx, first))

	second, err := authority.Claim(ctx, fence.Claim{
		Tile: tile, Contact: "host-b:7000", ID: fence.NewClaimID(), Expected: first.Epoch,
	})
	fmt.Println(second.Epoch, err)

	err = authority.Release(ctx, first)
	fmt.Println(errors.Is(err, fence.ErrLost), err)

	// Output:
	// 1 <nil>
	// <nil>
	// 2 <nil>
	// true tile 85283473fffffff: claim lost to host-b:7000 at epoch 2
}
