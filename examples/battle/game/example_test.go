package game_test

import (
	"fmt"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// An owner decides a tick, its batch is committed, and everybody folds the same events.
func Example() {
	ground := newDisk(2)
	owner, _ := game.NewRules(ground)
	watcher, _ := game.NewView(ground.Len())

	events, outcomes := owner.Resolve(1, []tile.Intent{
		{Actor: "ada", Body: game.Order{Kind: game.Spawn}.Encode()},
		{Actor: "bob", Body: game.Order{Kind: game.Move, Cell: 3}.Encode()},
	})
	payload, _, _ := (&stream.Batch{Events: events}).Encode() // what a commit carries

	if err := owner.Apply(1, events); err != nil {
		fmt.Println(err)
	}
	if err := watcher.Apply(&fence.Entry{Tick: 1, Payload: payload}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(outcomes[0], outcomes[1])
	fmt.Println(len(watcher.Ships()), "ship,", len(payload), "bytes, converged:", owner.Digest() == watcher.Digest())
	// Output:
	// applied rejected
	// 1 ship, 16 bytes, converged: true
}
