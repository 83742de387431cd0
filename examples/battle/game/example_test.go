package game_test

import (
	"fmt"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// An owner decides a tick, its batch is committed, and all fold the same events: a client those of the areas
// that it watches.
func Example() {
	ground := newDisk(2)
	owner, _ := game.NewRules(ground)
	watcher, _ := game.NewView(ground)
	viewport := fence.Areas(ground.Area(3))
	_ = watcher.Restore(nil, viewport) // a new tile has no snapshot

	events, outcomes := owner.Resolve(1, []tile.Intent{
		{Actor: "ada", Body: game.Order{Kind: game.Spawn, Cell: 3}.Encode()},
		{Actor: "bob", Body: game.Order{Kind: game.Spawn, Cell: 18}.Encode()},
		{Actor: "eve", Body: game.Order{Kind: game.Move, Cell: 3}.Encode()},
	})
	batch := stream.Batch{Events: events} // what the owner's tile.Processor does
	batch.Divide(owner.Area)
	payload, _, _ := batch.Encode() // what a commit carries
	if err := owner.Apply(1, batch.Events); err != nil {
		fmt.Println(err)
	}

	sent, _ := fence.SelectParts(payload, viewport) // what the relay does
	if err := watcher.Apply(&fence.Entry{Tick: 1, Payload: sent}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(outcomes[0], outcomes[1], outcomes[2])
	fmt.Println(len(watcher.Ships()), "ship,", len(sent), "of", len(payload), "bytes, converged:",
		watcher.Digests()[ground.Area(3)] == owner.Digests()[ground.Area(3)])
	// Output:
	// applied applied rejected
	// 1 ship, 15 of 30 bytes, converged: true
}
