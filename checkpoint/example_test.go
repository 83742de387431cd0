package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
)

// A tile is checkpointed, the coordination store is lost, and a new owner brings the tile back.
func Example() {
	ctx := context.Background()
	const tile fence.TileID = 0x85283473fffffff

	durable, err := sqlitecheckpoint.Open(ctx, sqlitecheckpoint.Memory)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = durable.Close() }()

	// An owner commits and saves a snapshot.
	coordination := memfence.New()
	receipt, err := coordination.Commit(ctx, fence.Commit{Tile: tile, Epoch: 1, Contact: "10.0.0.1:7000", Tick: 1,
		Payload: []byte("ship 7 sails north"), Install: true})
	if err != nil {
		log.Fatal(err)
	}
	err = coordination.SaveSnapshot(ctx, fence.SnapshotWrite{Tile: tile, Position: receipt.Position, Tick: 1,
		Blob: []byte("ship 7 at 3,4")})
	if err != nil {
		log.Fatal(err)
	}

	// A Checkpointer copies it. In a service this is c.Run(ctx), on a cadence.
	c, err := checkpoint.New(memstream.New(coordination), durable, nil, []fence.TileID{tile}, nil)
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
	claim := fence.Claim{Tile: tile, Contact: "10.0.0.2:7000", ID: fence.NewClaimID(), Floor: snapshot.Epoch}
	epoch := claim.Floor + 1 // what an authority that has lost its rows, too, would mint
	receipt, err = coordination.Rebase(ctx, fence.Rebase{Tile: tile, Epoch: epoch, Contact: claim.Contact,
		Seq: snapshot.Seq + fence.RebaseJump, Tick: snapshot.Tick, Blob: snapshot.Blob})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, from epoch %d, sequence %d to epoch %d, sequence %d\n", snapshot.Blob,
		snapshot.Epoch, snapshot.Seq, receipt.Position.Epoch, receipt.Position.Seq)
	// Output: ship 7 at 3,4, from epoch 1, sequence 1 to epoch 2, sequence 4097
}

// A write-through tile changes owners. The first one has stalled and does not know; the journal does.
func Example_journal() {
	ctx := context.Background()
	const tile fence.TileID = 0x85283473fffffff
	var journal checkpoint.JournalStore = memcheckpoint.New()
	batch := func(epoch fence.Epoch, prev fence.Position, payload string) fence.Entry {
		return fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch, Prev: prev, Tick: 1,
			Payload:  []byte(payload),
			Position: fence.Position{Epoch: epoch, Seq: prev.Seq + 1}})
	}

	// An owner seals the journal for its epoch, and appends before it acknowledges.
	if err := journal.Seal(ctx, tile, 1); err != nil {
		log.Fatal(err)
	}
	first := batch(1, fence.Position{}, "ship 7 sails north")
	if err := journal.Append(ctx, tile, first); err != nil {
		log.Fatal(err)
	}

	// The next owner does the same, then reads what there is: in this order, so that nothing can be added.
	if err := journal.Seal(ctx, tile, 2); err != nil {
		log.Fatal(err)
	}
	tail, err := journal.Tail(ctx, tile, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d batch: %s\n", len(tail), tail[0].Payload)

	err = journal.Append(ctx, tile, batch(1, first.Position, "ship 7 sinks"))
	fmt.Println("the first owner is stale:", errors.Is(err, fence.ErrStale))

	// A checkpoint at or past the batch makes it unnecessary; a Checkpointer with a journal does this.
	if err := journal.Truncate(ctx, tile, first.Seq); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 batch: ship 7 sails north
	// the first owner is stale: true
}
