package redismatch_test

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// A process that makes matches for two queues. It needs servers, so it is compiled and not run.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClusterClient(redisfence.Options("10.0.0.1:6379", "10.0.0.2:6379"))
	store, err := redismatch.New(client, nil)
	if err != nil {
		panic(err)
	}
	if err := store.Load(ctx); err != nil {
		panic(err)
	}
	seats, err := match.NewSeatAllocator(store, "eu", 0)
	if err != nil {
		panic(err)
	}
	queues := []match.Queue{
		{Name: "ranked-eu", Max: 2},
		{Name: "casual-eu", Max: 8, Teams: 2, Min: 4, Strategy: match.Batch{}},
	}
	worker, err := match.NewWorker(store, seats, queues, nil)
	if err != nil {
		panic(err)
	}
	if err := worker.Run(ctx); err != nil { // until ctx ends
		panic(err)
	}
}
