package redisplan_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// A process of workers, which drains when it is asked to end. It needs a Redis at this address, so it is only
// compiled here.
func Example() {
	client := redis.NewClusterClient(redisfence.Options("127.0.0.1:6379"))
	defer func() { _ = client.Close() }()
	plans, err := redisplan.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := plans.Load(ctx); err != nil {
		fmt.Println(err)
		return
	}
	worker, err := plan.NewWorker(plans, plan.PlannerFunc(think), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx))
}

// think is where the client of a model is called.
func think(_ context.Context, r plan.Request) ([]byte, plan.Usage, error) {
	return []byte(r.Words), plan.Usage{Model: "a-model"}, nil
}
