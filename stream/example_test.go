package stream_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

// A new reader recovers a tile's history and folds it.
func Example() {
	ctx := context.Background()
	store := memfence.New()
	log := memstream.New(store)
	const tile fence.TileID = 0x85283083fffffff

	genesis, err := store.Rebase(ctx, fence.Rebase{Tile: tile, Epoch: 1, Contact: "a:1", Seq: 1,
		Blob: []byte("once upon a time")})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := genesis.Position
	for tick, word := range []string{"a", "ship", "moved"} {
		payload, _, err := (&stream.Batch{Events: [][]byte{[]byte(word)}}).Encode()
		if err != nil {
			fmt.Println(err)
			return
		}
		r, err := store.Commit(ctx, fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Prev: at,
			Tick: fence.Tick(tick + 1), Payload: payload})
		if err != nil {
			fmt.Println(err)
			return
		}
		at = r.Position
	}

	history, err := stream.Recover(ctx, log, tile)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s", history.Snapshot.Blob)
	for _, e := range history.Entries {
		batch, err := stream.DecodeBatch(&e)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf(" %s", batch.Events[0])
	}
	fmt.Println(";", history.Position == at)
	// Output: once upon a time a ship moved; true
}
