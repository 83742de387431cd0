package memshard_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/stream/shard"
	"github.com/tilefence/tilefence/stream/shard/memshard"
)

func Example() {
	leases := memshard.New()
	ctx := context.Background()
	ranges, err := shard.NewRanges(0x852834000000000) // two shards
	if err != nil {
		fmt.Println(err)
		return
	}
	one := shard.Request{Group: "bridge", Holder: "one", Beat: 1, Ranges: ranges, TTL: 3 * time.Second}
	reply, err := leases.Sync(ctx, one)
	fmt.Println(reply.Held, err)

	two := one
	two.Holder = "two"
	reply, err = leases.Sync(ctx, two)
	fmt.Println(reply.Held, reply.Share, err) // a share of one, but nothing is free

	one.Beat++
	reply, err = leases.Sync(ctx, one)
	fmt.Println(reply.Held, err) // so it is to give one back
	// Output:
	// [{{0 1} false} {{1 2} false}] <nil>
	// [] 1 <nil>
	// [{{0 1} false} {{1 2} true}] <nil>
}
