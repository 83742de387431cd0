package tiered_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

func Example() {
	ctx := context.Background()
	const tile fence.TileID = 0x85283473fffffff
	// In production a redisfanout.Fanout and a natsfanout.Fanout, and one tiered.Fanout in each process.
	f, err := tiered.New(memfanout.New(), memfanout.New(), &tiered.Config{Subscribers: 100, Bytes: 50_000_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()

	received := make(chan string, 1)
	stop, err := f.Subscribe(ctx, tile, func(data []byte) { received <- string(data) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	sent, err := f.Publish(ctx, []fanout.Message{{Tile: tile, Data: []byte("frame")}})
	fmt.Println(sent, err, <-received)
	fmt.Println(len(f.Tiles()), "tiles on the broker")

	// Output:
	// 1 <nil> frame
	// 0 tiles on the broker
}
