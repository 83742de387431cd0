package bridge_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const tile fence.TileID = 0x85283473fffffff

	store, broker := memfence.New(), memfanout.New()
	b, err := bridge.New(memstream.New(store), broker, nil, []fence.TileID{tile}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	// A watcher, as a relay is one.
	frames := make(chan fence.Entry, 1)
	stop, err := broker.Subscribe(ctx, tile, func(data []byte) {
		if f, err := fence.DecodeEntry(data); err == nil {
			frames <- f
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()

	// An owner commits; the bridge delivers.
	payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("ship 7 fires")}}).Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = store.Commit(ctx, fence.Commit{Tile: tile, Epoch: 1, Contact: "10.0.0.1:7000", Tick: 1,
		Payload: payload, Install: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	f := <-frames
	batch, err := stream.DecodeBatch(&f)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("tile %s, epoch %d, batch %d: %s\n", f.Tile, f.Epoch, f.Seq, batch.Events[0])

	cancel()
	fmt.Println("run:", <-ended)

	// Output:
	// tile 85283473fffffff, epoch 1, batch 1: ship 7 fires
	// run: <nil>
}
