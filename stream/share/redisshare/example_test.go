package redisshare_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/stream/share/redisshare"
)

// It needs a Redis at this address, so it is only compiled here.
func Example() {
	client := redis.NewClusterClient(redisfanout.Options("127.0.0.1:6379"))
	defer func() { _ = client.Close() }()
	tiles := share.Fixed([]fence.TileID{0x85283473fffffff})
	s, err := share.New(redisshare.New(client, fence.World{}), "bridge", tiles, printer{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Run(context.Background()))
}

// printer stands for a bridge.Bridge.
type printer struct{}

func (printer) Add(tiles ...fence.TileID) error {
	fmt.Println("mine:", tiles)
	return nil
}

func (printer) Remove(tiles ...fence.TileID) { fmt.Println("no longer mine:", tiles) }
