package standin_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/standin"
)

func Example() {
	planner := standin.New(&standin.Config{Think: func(_ context.Context, r plan.Request) ([]byte, error) {
		if r.Entity == "wreck" {
			return nil, plan.ErrNoSubject
		}
		return []byte("turn back"), nil
	}})
	for _, entity := range []string{"ship-7", "wreck"} {
		body, used, err := planner.Plan(context.Background(), plan.Request{Entity: entity, Words: "what now?"})
		fmt.Printf("%q %d %v\n", body, used.Output, err)
	}
	// Output:
	// "turn back" 2 <nil>
	// "" 0 nothing left to plan for
}
