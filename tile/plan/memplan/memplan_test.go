package memplan_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

func TestConformance(t *testing.T) {
	plantest.Run(t, func(*testing.T) plan.Store { return memplan.New() })
}

// An owner asks, a worker answers, and the owner's next turn has the answer.
func Example() {
	ctx, plans := context.Background(), memplan.New()
	r := plan.Request{ID: "r1", Tile: 0x85283083fffffff, Entity: "ship-7", Tier: plan.Player, Words: "flee"}
	shard := plan.ShardOf(r.Tile, plans.Shards())
	asked := plans.Turn(ctx, shard, []plan.Turn{{Tile: r.Tile, Epoch: 1, Ask: []plan.Request{r}}})
	fmt.Println(asked[0].Asked[0].Taken, asked[0].InStore)

	got, err := plans.Claim(ctx, shard, plan.Claim{Worker: "w1", Lease: time.Minute, Any: 4, Attempts: 5})
	fmt.Println(got.Requests[0].Words, err)
	held, err := plans.Finish(ctx, shard, "w1", []plan.End{{Held: plan.Held{ID: "r1", Attempt: 1}, Kind: plan.Succeeded,
		Body: []byte("north"), Keep: plan.AnswerTTL}})
	fmt.Println(held, err)

	turns := plans.Turn(ctx, shard, []plan.Turn{{Tile: r.Tile, Epoch: 1}})
	fmt.Println(turns[0].Answers[0].Kind, string(turns[0].Answers[0].Body))
	// Output:
	// true 1
	// flee <nil>
	// [true] <nil>
	// planned north
}
