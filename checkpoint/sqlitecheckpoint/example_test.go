package sqlitecheckpoint_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
)

func Example() {
	ctx := context.Background()
	store, err := sqlitecheckpoint.Open(ctx, ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	const tile fence.TileID = 0x85283083fffffff
	snapshot := func(epoch fence.Epoch, seq fence.Seq, state string) fence.Snapshot {
		return fence.Snapshot{Position: fence.Position{Epoch: epoch, Seq: seq, Chain: 1}, Contact: "a:1",
			Sum: fence.Checksum([]byte(state)), Blob: []byte(state)}
	}
	if err = store.Put(ctx, tile, snapshot(2, 60, "newer")); err != nil {
		fmt.Println(err)
		return
	}
	err = store.Put(ctx, tile, snapshot(1, 30, "older"))
	fmt.Println(errors.Is(err, checkpoint.ErrOlder))
	s, found, err := store.Get(ctx, tile)
	fmt.Println(found, string(s.Blob), s.Seq, err)
	// Output:
	// true
	// true newer 60 <nil>
}
