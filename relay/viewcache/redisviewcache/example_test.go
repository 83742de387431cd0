package redisviewcache_test

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// It needs a Redis at this address, so it is only compiled here.
func Example() {
	client := redis.NewClient(redisviewcache.Options("127.0.0.1:6379"))
	defer func() { _ = client.Close() }()
	store, err := redisviewcache.New(client, fence.World{}, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	log := memstream.New(memfence.New())                 // production: redisstream
	keys := [][]byte{[]byte("16 random bytes, or more")} // of all relays of the deployment, such as Backends.Keys
	views, err := viewcache.New(store, log, keys, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := relay.New(memfanout.New(), log, relay.Public, &relay.Config{Views: views})
	fmt.Println(r.Stats().Shared, err)
}
