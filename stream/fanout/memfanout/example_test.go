package memfanout_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

func Example() {
	ctx := context.Background()
	const tile fence.TileID = 0x85283473fffffff
	broker := memfanout.New()

	received := make(chan string, 2)
	stop, err := broker.Subscribe(ctx, tile, func(data []byte) { received <- string(data) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	sent, err := broker.Publish(ctx, []fanout.Message{
		{Tile: tile, Data: []byte("first")},
		{Tile: tile, Data: []byte("second")},
	})
	fmt.Println(sent, err)
	fmt.Println(<-received)
	fmt.Println(<-received)

	// Output:
	// 2 <nil>
	// first
	// second
}
