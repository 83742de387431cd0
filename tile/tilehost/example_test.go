package tilehost_test

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// chime is a game without state: every intent is an event.
type chime struct{}

func (chime) Restore([]byte) error { return nil }

func (chime) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range intents {
		events, outcomes = append(events, []byte("chime")), append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (chime) Apply(fence.Tick, [][]byte) error { return nil }
func (chime) Snapshot() ([]byte, error)        { return nil, nil }

// Two processes on one set of back ends: the second takes a tile from the first, which sends everybody on.
func ExampleHost() {
	store := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
	rules := func(fence.TileID) (tile.Rules, error) { return chime{}, nil }
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	start := func(contact string) *tilehost.Host {
		h, err := tilehost.New(contact, seams, rules, &tilehost.Config{
			Announce: func(o fence.Owner) { /* tell gossip */ },
		})
		if err != nil {
			panic(err)
		}
		go func() { ended <- h.Run(ctx) }()
		return h
	}
	north, south := start("10.0.0.7:7000"), start("10.0.0.8:7000")

	const plaza, harbour fence.TileID = 0x85283083fffffff, 0x85283087fffffff
	_ = north.Own(plaza, harbour)
	fmt.Println(north.Await(ctx, plaza, harbour))

	loser := north.Processor(plaza)
	_ = south.TakeOver(plaza)
	fmt.Println(south.Await(ctx, plaza))
	<-loser.Superseded() // its next commit is refused, and says by whom it was replaced
	_, err := north.Submit(ctx, tile.Intent{Tile: plaza, Actor: "ann"})
	fmt.Println(err)
	outcome, err := south.Submit(ctx, tile.Intent{Tile: plaza, Actor: "ann"})
	fmt.Println(outcome, err)

	stop() // both drain what they own
	fmt.Println(<-ended, <-ended)
	// Output:
	// <nil>
	// <nil>
	// tile 85283083fffffff: tile is owned elsewhere: epoch 2 at 10.0.0.8:7000
	// applied <nil>
	// <nil> <nil>
}
