package relayclient_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

// A client is given a tile's state, and then every batch in order.
func ExampleDial() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := memfence.New()
	r, _ := relay.New(memfanout.New(), memstream.New(store), relay.Public, nil)
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	server := httptest.NewServer(r.Handler())

	tile := fence.TileID(0x85283473fffffff)
	_, _ = store.Rebase(ctx, fence.Rebase{Tile: tile, Epoch: 1, Contact: "owner:9000", Seq: 1,
		Blob: stream.AppendSnapshot(nil, []byte("an empty field"), nil)})

	given := make(chan string)
	client, err := relayclient.Dial(ctx, server.URL, &relayclient.Config{
		Sync: func(s relayclient.Sync) {
			given <- fmt.Sprintf("tile %s at %d: %s (epoch %d)", s.Tile, s.Position.Seq, s.Snapshot.Blob,
				s.Owner.Epoch)
		},
		Frame: func(f fence.Entry) {
			batch, err := stream.DecodeBatch(&f)
			given <- fmt.Sprintf("batch %d: %q %v", f.Seq, batch.Events, err)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = client.Subscribe(ctx, tile)
	fmt.Println(<-given)

	_ = client.Close()
	cancel()
	<-ran
	server.Close()
	// Output:
	// tile 85283473fffffff at 1: an empty field (epoch 1)
}
