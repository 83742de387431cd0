package share_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/share"
)

// printer stands for a bridge.Bridge.
type printer struct{ wg *sync.WaitGroup }

func (p printer) Add(tiles ...fence.TileID) error {
	p.wg.Add(-len(tiles))
	return nil
}

func (p printer) Remove(...fence.TileID) {}

// A process takes its share of three tiles: all of them, while it is alone.
func Example() {
	tiles := []fence.TileID{0x85283473fffffff, 0x85283083fffffff, 0x8528308bfffffff}
	list := share.NewMemory() // redisshare in production
	var missing sync.WaitGroup
	missing.Add(len(tiles))
	s, err := share.New(list, "bridge", share.Fixed(tiles), printer{&missing}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

	missing.Wait()
	fmt.Println(s.Stats().Members, "member")
	cancel()
	fmt.Println(<-done)
	// Output:
	// 1 member
	// <nil>
}
