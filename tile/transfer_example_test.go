package tile_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// hall is a game whose guests enter, and leave through a door to another tile.
type hall struct {
	guests map[string]bool
	door   fence.TileID // where it leads; 0: nowhere
	seats  int
}

func (h *hall) Restore(snapshot []byte) error {
	h.guests = map[string]bool{}
	for _, name := range strings.Fields(string(snapshot)) {
		h.guests[name] = true
	}
	return nil
}

func (h *hall) Snapshot() ([]byte, error) {
	return []byte(strings.Join(slices.Sorted(maps.Keys(h.guests)), " ")), nil
}

func (h *hall) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if name, entered := strings.CutPrefix(string(e), "+"); entered {
			h.guests[name] = true
		} else {
			delete(h.guests, string(e[1:]))
		}
	}
	return nil
}

func (h *hall) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) {
	panic("Play is called")
}

// Play has the three branches of a game whose entities travel: one leaves, one arrives or is refused, one comes back.
func (h *hall) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	guests := maps.Clone(h.guests) // a draft: what this tick has decided
	say := func(event string) { out.Events = append(out.Events, []byte(event)) }
	for _, i := range in.Intents {
		switch order := string(i.Body); {
		case order == "enter" && !guests[i.Actor] && len(guests)+in.UnderWay < h.seats:
			guests[i.Actor] = true
			say("+" + i.Actor)
			out.Decide(stream.Applied, "")
		case order == "leave" && guests[i.Actor] && h.door != 0 && in.Room(h.door, 0) > len(out.Departures):
			delete(guests, i.Actor)
			in.UnderWay++ // the seat is kept until the guest has arrived
			say("-" + i.Actor)
			out.Departures = append(out.Departures, stream.Departure{To: h.door, Entity: i.Actor, Actor: i.Actor})
			out.Decide(stream.Applied, "")
		default:
			out.Decide(stream.Fizzled, "not now")
		}
	}
	for _, a := range in.Arrivals {
		if len(guests)+in.UnderWay == h.seats {
			out.Verdicts = append(out.Verdicts, tile.Verdict{Refused: "the hall is full"})
			continue
		}
		guests[a.Entity] = true
		say("+" + a.Entity)
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
	}
	for _, r := range in.Returns {
		say("+" + r.Entity)
	}
	return out
}

// A guest goes through the door, and the next one is sent back, since the other hall is full.
func ExampleTransferRules() {
	const lobby, bar fence.TileID = 0x85283083fffffff, 0x85283087fffffff
	store := memfence.New()
	tiles := map[fence.TileID]*tile.TileProcessor{}
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Present: func(ctx context.Context, p tile.Presentation) (tile.Answer, error) {
			return tiles[p.To].Present(ctx, p)
		}}
	cfg := &tile.Config{TickInterval: 20 * time.Millisecond}
	full, came := make(chan int, 64), make(chan int, 64)
	cfg.Hooks.Committed = func(c tile.CommitInfo) {
		if c.Returns > 0 {
			full <- c.Returns
		}
	}
	tiles[lobby], _ = tile.New(lobby, "127.0.0.1:7000", seams, &hall{door: bar, seats: 2}, cfg)
	cfg = &tile.Config{TickInterval: 20 * time.Millisecond}
	cfg.Hooks.Committed = func(c tile.CommitInfo) {
		if len(c.Arrived) > 0 {
			came <- len(c.Arrived)
		}
	}
	there := &hall{seats: 1}
	tiles[bar], _ = tile.New(bar, "127.0.0.1:7001", seams, there, cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	for _, p := range tiles {
		go func() { ended <- p.Run(ctx) }()
	}
	for _, guest := range []string{"ann", "bob"} {
		for _, order := range []string{"enter", "leave"} {
			result, err := tiles[lobby].Submit(ctx, tile.Intent{Tile: lobby, Actor: guest, Body: []byte(order)})
			fmt.Println(guest, order, result.Outcome, err)
		}
		select {
		case <-came:
			fmt.Println(guest, "is in the bar")
		case <-full:
			fmt.Println(guest, "is back")
		}
	}
	stop()
	fmt.Println(<-ended, <-ended, slices.Collect(maps.Keys(there.guests)))
	// Output:
	// ann enter applied <nil>
	// ann leave applied <nil>
	// ann is in the bar
	// bob enter applied <nil>
	// bob leave applied <nil>
	// bob is back
	// <nil> <nil> [ann]
}
