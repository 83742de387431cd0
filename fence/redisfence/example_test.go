package redisfence_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

func Example() {
	ctx := context.Background()
	client := redis.NewClusterClient(redisfence.Options("127.0.0.1:7000", "127.0.0.1:7001"))
	defer func() { _ = client.Close() }()
	store, err := redisfence.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Load(ctx); err != nil { // once, before the first commit
		log.Fatal(err)
	}
	owner, err := store.Owner(ctx, 0x85283083fffffff)
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := store.Commit(ctx, fence.Commit{Tile: owner.Tile, Epoch: owner.Epoch + 1, Contact: "10.0.0.7:7000",
		Prev: owner.Position, Tick: owner.Tick, Install: true, Replicas: fence.AllReplicas})
	fmt.Println(receipt.Position, receipt.Replicas, err)
}
