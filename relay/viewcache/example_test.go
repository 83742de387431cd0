package viewcache_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream/memstream"
)

// Two relays share the view of a tile: the second reads nothing.
func Example() {
	ctx, tile := context.Background(), fence.TileID(0x85283473fffffff)
	coordination := memfence.New()
	_, err := coordination.Commit(ctx, fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:1", Tick: 1, Install: true,
		Payload: fence.AppendPart(nil, 0, []byte("ann rings"))})
	if err != nil {
		fmt.Println(err)
		return
	}
	keys := [][]byte{[]byte("16 random bytes, or more")} // of all relays of the deployment
	store := viewcache.NewMemory()
	for range 2 {
		views, err := viewcache.New(store, memstream.New(coordination), keys, nil) // one for each relay
		if err != nil {
			fmt.Println(err)
			return
		}
		v, err := views.View(ctx, tile, fence.Position{})
		fmt.Println(v.Position.Seq, len(v.Entries), err, "calls to the log:", views.Stats().LogReads)
	}
	// Output:
	// 1 1 <nil> calls to the log: 2
	// 1 1 <nil> calls to the log: 0
}
