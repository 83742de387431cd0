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
	fmt.Println(sent, err, <-got, fence.World{}.Channel(tile))
	// Output: 1 <nil> a frame {tile:85283083fffffff}:frames
}

// An owner hints what it has committed, and the bridge reads it without waiting for a poll.
func ExampleHinter() {
	broker := memfanout.New() // redisfanout in production
	hinter, err := fanout.NewHinter(broker, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- hinter.Run(ctx) }()

	const tile fence.TileID = 0x85283083fffffff
	woken := make(chan fence.TileID)
	stop, err := broker.SubscribeHints(fanout.HintGroupOf(tile), // a bridge subscribes to every group
		func(tiles []fence.TileID) { woken <- tiles[0] },
		func(inForce bool) { fmt.Println("hints arrive:", inForce) })
	if err != nil {
		fmt.Println(err)
		return
	}
	hinter.Hint(tile) // from tile.Hooks.Committed
	fmt.Println(<-woken)
	stop()
	cancel()
	fmt.Println(<-done)
	// Output:
	// hints arrive: true
	// 85283083fffffff
	// <nil>
}
