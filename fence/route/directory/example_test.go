package directory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
)

// A tile's owner writes who has arrived; a process that knows no more than the player's name finds the tile.
func Example() {
	store := directory.NewMemory() // redisdirectory in production
	d, err := directory.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()

	d.Moved(directory.Move{Actor: "ann", To: 0x85283473fffffff, At: time.Now(),
		Came: fence.Position{Epoch: 3, Seq: 71}, From: 0x85283083fffffff, Left: fence.Position{Epoch: 1, Seq: 12}})
	cancel()
	fmt.Println(<-done)
	fmt.Println(d.Where(context.Background(), "ann"))
	processes, err := d.Tell(context.Background(), "ann", []byte("hail"))
	fmt.Println(processes, "have sessions of hers", err)
	// Output:
	// <nil>
	// 85283473fffffff <nil>
	// 0 have sessions of hers <nil>
}
