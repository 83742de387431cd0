package redisstream_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// A reader recovers a tile, and then trims what no consumer needs any more.
func Example() {
	ctx := context.Background()
	client := redis.NewClusterClient(redisfence.Options("127.0.0.1:7000", "127.0.0.1:7001"))
	defer func() { _ = client.Close() }()
	functions, err := redisfence.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	tiles := redisstream.New(functions, client)

	const tile fence.TileID = 0x85283083fffffff
	history, err := stream.Recover(ctx, tiles, tile)
	if err != nil {
		log.Fatal(err)
	}
	trimmed, err := tiles.Trim(ctx, stream.TrimRequest{Tile: tile, Lease: 2 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(history.Position, len(history.Entries), trimmed.Removed)
}
