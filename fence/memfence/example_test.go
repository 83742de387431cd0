package memfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
)

// What Redis would do after a failover that lost the last batch, made by hand: the owner is refused
// because the store is behind, and re-appends the batch.
func ExampleStore_Update() {
	ctx := context.Background()
	store := memfence.New()
	const tile fence.TileID = 0x85283083fffffff

	first := fence.Commit{Tile: tile, Epoch: 1, Contact: "a:7000", Tick: 1, Payload: []byte("moved"), Install: true}
	second := fence.Commit{Tile: tile, Epoch: 1, Contact: "a:7000", Tick: 2, Payload: []byte("fired"),
		Prev: first.Next()}
	third := fence.Commit{Tile: tile, Epoch: 1, Contact: "a:7000", Tick: 3, Payload: []byte("sank"),
		Prev: second.Next()}
	for _, c := range []fence.Commit{first, second} {
		if _, err := store.Commit(ctx, c); err != nil {
			fmt.Println(err)
			return
		}
	}

	store.Update(tile, func(s *memfence.State) {
		s.Entries = s.Entries[:1]
		s.Owner.Position, s.Owner.Tick = first.Next(), 1
	})
	_, err := store.Commit(ctx, third)
	fmt.Println(errors.Is(err, fence.ErrBehind))
	for _, c := range []fence.Commit{second, third} {
		r, err := store.Commit(ctx, c)
		fmt.Println(r.Position.Seq, err)
	}
	// Output:
	// true
	// 2 <nil>
	// 3 <nil>
}
