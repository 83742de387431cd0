package fanout_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

func Example() {
	var broker interface {
		fanout.Publisher
		fanout.Subscriber
	} = memfanout.New() // redisfanout in production
	const tile fence.TileID = 0x85283083fffffff
	ctx := context.Background()

	got := make(chan string)
	stop, err := broker.Subscribe(ctx, tile, func(data []byte) { got <- string(data) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	sent, err := broker.Publish(ctx, []fanout.Message{{Tile: tile, Data: []byte("a frame")}})
	fmt.Println(sent, err, <-got, fanout.Channel(tile))
	// Output: 1 <nil> a frame {tile:85283083fffffff}:frames
}
