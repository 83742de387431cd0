package shard_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/shard"
	"github.com/tilefence/tilefence/stream/shard/memshard"
)

// printer stands for a bridge.Bridge.
type printer struct {
	mu   sync.Mutex
	has  map[fence.TileID]bool
	full chan struct{} // closed when it has all tiles
}

func (p *printer) Add(tiles ...fence.TileID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tiles {
		p.has[t] = true
	}
	if len(p.has) == 3 {
		close(p.full)
	}
	return nil
}

func (p *printer) Remove(tiles ...fence.TileID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tiles {
		delete(p.has, t)
	}
}

// A process takes its share of three tiles: all of them, while it is alone.
func ExampleShare() {
	tiles := []fence.TileID{0x85283473fffffff, 0x85283083fffffff, 0x8528308bfffffff}
	ranges, err := shard.Cut(tiles, 2) // several times as many shards as processes
	if err != nil {
		fmt.Println(err)
		return
	}
	leases := memshard.New() // redisshard in production
	target := &printer{has: map[fence.TileID]bool{}, full: make(chan struct{})}
	share, err := shard.NewShare(leases, "bridge", ranges, shard.Fixed(tiles), target, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- share.Run(ctx) }()

	<-target.full
	fmt.Println(len(share.Held()), "shards,", share.Stats().Tiles, "tiles")
	cancel()
	fmt.Println(<-done, len(target.has))
	// Output:
	// 2 shards, 3 tiles
	// <nil> 0
}
