package memfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/memfence"
)

func TestAuthority(t *testing.T) {
	fencetest.RunAuthority(t, func(*testing.T) fence.Authority { return memfence.NewAuthority() })
}

// Two hosts want one tile. The loser learns where the winner is; when the winner falls silent, the
// loser takes over from the epoch it knows.
func ExampleNewAuthority() {
	ctx := context.Background()
	authority := memfence.NewAuthority()
	const tile fence.TileID = 0x85283473fffffff

	first, err := authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "host-a:7000", ID: fence.NewClaimID()})
	fmt.Println(first.Epoch, err)

	_, err = authority.Claim(ctx, fence.Claim{Tile: tile, Contact: "host-b:7000", ID: fence.NewClaimID()})
	var lost *fence.LostError
	if errors.As(err, &lost) {
		fmt.Println("go to", lost.Current.Contact)
	}

	second, err := authority.Promote(ctx, fence.Claim{
		Tile: tile, Contact: "host-b:7000", ID: fence.NewClaimID(), Expected: lost.Current.Epoch,
	})
	fmt.Println(second.Epoch, err)

	// Output:
	// 1 <nil>
	// go to host-a:7000
	// 2 <nil>
}
