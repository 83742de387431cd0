package redisshard_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/shard"
	"github.com/tilefence/tilefence/stream/shard/redisshard"
)

// It needs a Redis at this address, so it is only compiled here.
func Example() {
	client := redis.NewClusterClient(redisfanout.Options("127.0.0.1:6379"))
	defer func() { _ = client.Close() }()
	leases, err := redisshard.New(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	member, err := shard.NewMember(leases, "bridge", shard.Ranges{}, logger{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(member.Run(context.Background()))
}

type logger struct{}

func (logger) Gained(shard int, token shard.Token) { fmt.Println("gained", shard, token) }
func (logger) Lost(_ context.Context, shard int)   { fmt.Println("lost", shard) }
