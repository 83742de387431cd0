package tile_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// A tile that writes through loses nothing that it has acknowledged, although its owner and all of coordination are
// lost at once.
func Example_writeThrough() {
	durable := memcheckpoint.New() // DynamoDB or SQLite, in a deployment
	cfg := tile.Config{TickInterval: 10 * time.Millisecond, Durability: tile.WriteThrough,
		Hooks: tile.Hooks{Restored: func(i tile.RestoredInfo) {
			fmt.Println("lost:", i.LostTicks, "ticks, exactly:",
				i.Exact)
		}},
		// A checkpoint.Checkpointer beside it copies snapshots, and truncates the journal behind them.
	}
	authority := memfence.NewAuthority()
	run := func(f func(p *tile.TileProcessor)) {
		store := memfence.New() // each time an empty one
		seams := tile.Seams{Authority: authority, Store: store, Log: memstream.New(store), Journal: durable,
			Checkpoint: func(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
				return checkpoint.Restore(ctx, durable, id)
			}}
		p, err := tile.New(testTile, "10.0.0.7:7000", seams, &ledgerRules{}, &cfg)
		if err != nil {
			fmt.Println(err)
			return
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		f(p)
		stop()
		<-ended
	}
	run(func(p *tile.TileProcessor) {
		o, err := p.Submit(context.Background(), tile.Intent{Tile: testTile, ActionID: "a1", Body: []byte("hello")})
		fmt.Println(o, err)
	})
	run(func(p *tile.TileProcessor) {
		o, err := p.Submit(context.Background(), tile.Intent{Tile: testTile, ActionID: "a1", Body: []byte("hello")})
		fmt.Println(o, err, "again")
		_ = p.Inspect(context.Background(),
			func(r tile.Rules, _ fence.Position) { fmt.Println(r.(*ledgerRules).Words) })
	})
	// Output:
	// applied <nil>
	// lost: 0 ticks, exactly: true
	// applied <nil> again
	// [hello]
}
