package memstream_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

func Example() {
	ctx := context.Background()
	store := memfence.New()
	log := memstream.New(store)
	const tile fence.TileID = 0x85283083fffffff

	payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("bang")}}).Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = store.Commit(ctx, fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Tick: 1, Payload: payload,
		Install: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	chunks, err := log.Read(ctx, []stream.Cursor{{Tile: tile}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range chunks[0].Entries {
		batch, err := stream.DecodeBatch(&e)
		fmt.Printf("%d: %s %v\n", e.Seq, batch.Events[0], err)
	}
	// Output: 1: bang <nil>
}
