package checkpoint_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/sqlite"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
)

// A tile is checkpointed, the coordination store is lost, and a new owner brings the tile back.
func Example() {
	ctx := context.Background()
	const tile fence.TileID = 0x85283473fffffff

	durable, err := sqlite.Open(ctx, sqlite.Memory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = durable.Close() }()

	// An owner commits and saves a snapshot.
	coordination := memfence.New()
	receipt, err := coordination.Commit(ctx, fence.Commit{Tile: tile, Epoch: 1, Contact: "10.0.0.1:7000", Tick: 1,
		Events: 1, Payload: []byte("ship 7 sails north"), Install: true})
	if err != nil {
		log.Fatal(err)
	}
	err = coordination.SaveSnapshot(ctx, fence.SnapshotWrite{Tile: tile, Position: receipt.Position, Tick: 1, Blob: []byte("ship 7 at 3,4")})
	if err != nil {
		log.Fatal(err)
	}

	// A Checkpointer copies it. In a service this is c.Run(ctx), on a cadence.
	c, err := checkpoint.New(memstream.New(coordination), durable, []fence.TileID{tile}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.CheckpointNow(ctx, tile); err != nil {
		log.Fatal(err)
	}

	// The coordination store is gone. The next owner claims the tile above the checkpoint's epoch, and
	// rebases far above its sequence.
	coordination = memfence.New()
	snapshot, found, err := checkpoint.Restore(ctx, durable, tile)
	if err != nil || !found {
		log.Fatal(found, err)
	}
	claim := fence.Claim{Tile: tile, Contact: "10.0.0.2:7000", ID: fence.NewClaimID(), Above: snapshot.Epoch}
	epoch := claim.Above + 1 // what an authority that has lost its rows, too, would mint
	receipt, err = coordination.Rebase(ctx, fence.Rebase{Tile: tile, Epoch: epoch, Contact: claim.Contact,
		Seq: snapshot.Seq + fence.RebaseJump, Tick: snapshot.Tick, Blob: snapshot.Blob})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, from epoch %d, sequence %d to epoch %d, sequence %d\n", snapshot.Blob,
		snapshot.Epoch, snapshot.Seq, receipt.Position.Epoch, receipt.Position.Seq)
	// Output: ship 7 at 3,4, from epoch 1, sequence 1 to epoch 2, sequence 4097
}
