package natsfanout_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
)

// Without servers at hand this one is compiled, not run; see memfanout for one that runs.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	const tile fence.TileID = 0x85283473fffffff

	f, err := natsfanout.Open([]string{"nats://127.0.0.1:4222", "nats://127.0.0.1:4223"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	stop, err := f.Subscribe(ctx, tile, func(data []byte) { fmt.Println(len(data), "bytes") })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	if _, err := f.Publish(ctx, []fanout.Message{{Tile: tile, Data: []byte("frame")}}); err != nil {
		fmt.Println(err)
	}
}
