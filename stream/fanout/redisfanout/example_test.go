package redisfanout_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

// Without servers at hand this one is compiled, not run; see memfanout for one that runs.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	const tile fence.TileID = 0x85283473fffffff

	client := redis.NewClusterClient(redisfanout.Options("127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"))
	defer func() { _ = client.Close() }()
	f, err := redisfanout.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	stop, err := f.Subscribe(ctx, tile, func(data []byte) { fmt.Println(len(data), "bytes") })
	if err != nil {
		fmt.Println(err) // names the node that could not be reached
		return
	}
	defer stop()
	if _, err := f.Publish(ctx, []fanout.Message{{Tile: tile, Data: []byte("frame")}}); err != nil {
		fmt.Println(err)
	}
}
