package tile_test

import (
	"context"
	"fmt"
	"time"

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

// tower sees whether the doorbell of another tile has rung. It has nothing of its own.
type tower struct {
	doorbell
	other fence.TileID
}

func (w *tower) Sights() []tile.Sight {
	return []tile.Sight{{Tile: w.other, View: func() tile.View { return &doorbell{} }}}
}

func (w *tower) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	rim := in.Rim(w.other)
	for range in.Intents {
		if rim.Fresh && rim.View.(*doorbell).rings > 0 {
			out.Decide(stream.Applied, "it has rung")
		} else {
			out.Decide(stream.Fizzled, "nothing is seen")
		}
	}
	return out
}

// Rules see what their neighbour has committed, a moment later.
func ExampleSighted() {
	store := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
	cfg := &tile.Config{TickInterval: 20 * time.Millisecond}
	const there, here fence.TileID = 0x85283083fffffff, 0x85283087fffffff
	bell, _ := tile.New(there, "127.0.0.1:7000", seams, &doorbell{}, cfg)
	tower, _ := tile.New(here, "127.0.0.1:7001", seams, &tower{other: there}, cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	for _, p := range []*tile.TileProcessor{bell, tower} {
		go func() { ended <- p.Run(ctx) }()
	}
	_, err := bell.Submit(ctx, tile.Intent{Tile: there, Actor: "ann"})
	var seen tile.Result
	for err == nil && seen.Outcome != stream.Applied {
		seen, err = tower.Submit(ctx, tile.Intent{Tile: here, Actor: "guard"})
	}
	fmt.Println(seen.Why, err)
	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// it has rung <nil>
	// <nil> <nil>
}
