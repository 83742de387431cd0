package redisdirectory_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/directory/redisdirectory"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

// It needs a Redis at this address, so it is only compiled here.
func Example() {
	client := redis.NewClusterClient(redisfanout.Options("127.0.0.1:6379"))
	defer func() { _ = client.Close() }()
	d, err := directory.New(redisdirectory.New(client, fence.World{}), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Where(context.Background(), "ann"))
}
