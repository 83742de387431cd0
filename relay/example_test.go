package relay_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// A relay over the in-process back ends. The second of three batches is lost on its way; the client gets
// it all the same, in order.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, broker := memfence.New(), memfanout.New()
	r, err := relay.New(broker, memstream.New(store), relay.Public, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	server := httptest.NewServer(r.Handler())

	tile := fence.TileID(0x85283473fffffff)
	at, _ := store.Rebase(ctx, fence.Rebase{Tile: tile, Epoch: 1, Contact: "owner:9000", Seq: 1,
		Blob: stream.AppendSnapshot(nil, []byte("field"), nil)})

	given := make(chan string, 10)
	client, err := relayclient.Dial(ctx, server.URL, &relayclient.Config{
		Sync:  func(s relayclient.Sync) { given <- fmt.Sprintf("%d: %s", s.Position.Seq, s.Snapshot.Blob) },
		Frame: func(f fence.Entry) { given <- fmt.Sprintf("%d: %s", f.Seq, f.Payload) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = client.Subscribe(ctx, tile)
	fmt.Println(<-given)

	prev := at.Position
	for i, event := range []string{"north", "lost on the way", "south"} {
		c := fence.Commit{Tile: tile, Epoch: 1, Contact: "owner:9000", Prev: prev, Tick: fence.Tick(i + 1),
			Payload: []byte(event)}
		receipt, _ := store.Commit(ctx, c)
		prev = receipt.Position
		if i != 1 {
			_, _ = broker.Publish(ctx, []fanout.Message{{Tile: tile, Data: c.Entry().Frame}})
		}
	}
	for range 3 {
		fmt.Println(<-given)
	}

	_ = client.Close()
	cancel()
	<-ran
	server.Close()
	// Output:
	// 1: field
	// 2: north
	// 3: lost on the way
	// 4: south
}
