package plan_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

// pilot is a game of one ship. In its first tick it asks for a plan, and it flies on while it has none.
type pilot struct {
	desk  *plan.Desk
	id    fence.TileID
	asked bool
	flown int
	plans chan string
}

func (p *pilot) Restore([]byte) error      { return nil }
func (p *pilot) Snapshot() ([]byte, error) { return nil, nil }

func (p *pilot) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	if !p.asked {
		p.asked, _ = p.desk.Ask(plan.Request{Tile: p.id, Entity: "ship-7", Requester: "ann", Tier: plan.Player,
			Words: "flee to the north"})
	}
	p.flown++ // whatever the plan does
	for _, in := range intents {
		events, outcomes = append(events, in.Body), append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (p *pilot) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		p.plans <- string(e)
	}
	return nil
}

type bill chan plan.UsageEvent

func (b bill) Record(_ context.Context, events []plan.UsageEvent) error {
	for _, e := range events {
		b <- e
	}
	return nil
}

// A ship's plan takes half a second, and the ship flies on.
func Example() {
	const id fence.TileID = 0x85283083fffffff
	plans, store := memplan.New(), memfence.New()
	game := &pilot{id: id, plans: make(chan string, 1)}
	var owner *tile.TileProcessor
	desk, err := plan.NewDesk(plans, func(ctx context.Context, in tile.Intent) (tile.Result, error) {
		return owner.Submit(ctx, in)
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	game.desk = desk
	owner, err = tile.New(id, "127.0.0.1:7000",
		tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}, game,
		&tile.Config{TickInterval: 10 * time.Millisecond, Hooks: desk.Hooks(tile.Hooks{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	// In a game server, the worker and the biller are processes of their own.
	worker, err := plan.NewWorker(plans, plan.PlannerFunc(think), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	bills := make(bill, 1)
	biller, err := plan.NewBiller(plans, bills, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	for _, run := range []func(context.Context) error{owner.Run, desk.Run, worker.Run, biller.Run} {
		go func() { ended <- run(ctx) }()
	}

	fmt.Println("planned:", <-game.plans)
	e := <-bills
	fmt.Println("charged:", e.Requester, e.Usage.Model, e.Usage.Output, "tokens")
	stop()
	for range 4 {
		if err := <-ended; err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("flew on:", game.flown > 10)
	// Output:
	// planned: flee to the north
	// charged: ann a-model 4 tokens
	// flew on: true
}

// think is where the client of a model is called.
func think(_ context.Context, r plan.Request) ([]byte, plan.Usage, error) {
	return []byte(r.Words), plan.Usage{Model: "a-model", Output: int64(len(r.Words)) / 4}, nil
}
