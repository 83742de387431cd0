package tile_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// doorbell is a whole game: everybody can ring, and the state counts the rings.
type doorbell struct{ rings int }

func (d *doorbell) Restore(snapshot []byte) error {
	d.rings = len(snapshot)
	return nil
}

func (d *doorbell) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range intents {
		events, outcomes = append(events, []byte("ring")), append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (d *doorbell) Apply(_ fence.Tick, events [][]byte) error {
	d.rings += len(events)
	return nil
}

func (d *doorbell) Snapshot() ([]byte, error) { return make([]byte, d.rings), nil }

func Example() {
	store := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
	const id fence.TileID = 0x85283083fffffff
	bell := &doorbell{}
	p, err := tile.New(id, "127.0.0.1:7000", seams, bell, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()

	for range 2 { // a retry: the same action, the same outcome, one ring
		outcome, err := p.Submit(ctx, tile.Intent{Tile: id, ActionID: "press-1", Actor: "ann"})
		fmt.Println(outcome, err)
	}
	stop()
	fmt.Println(<-ended, bell.rings, p.Status().State)
	// Output:
	// applied <nil>
	// applied <nil>
	// <nil> 1 stopped
}
