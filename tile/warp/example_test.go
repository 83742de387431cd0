package warp_test

import (
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/warp"
)

// dock is a tile of ships with so many berths.
type dock struct {
	id     fence.TileID
	ships  map[string]bool
	berths int
	warps  warp.State
}

// play is the part of tile.TransferRules.Play that warps have. begin says which warp this tile begins, if any.
func (d *dock) play(tick fence.Tick, in tile.Inputs, begin func(*warp.Turn)) (out tile.Outputs) {
	var turn *warp.Turn
	turn = d.warps.Turn(d.id, tick, in.Room, func(a warp.Ask) bool {
		for _, p := range a.Leave {
			if !d.ships[p.Entity] {
				return false
			}
		}
		return len(d.ships)+turn.Seats()+len(a.Arrive) <= d.berths
	})
	begin(turn)
	for _, a := range in.Arrivals {
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
		if !turn.Arrive(a) && turn.Seated(a) {
			out.Events = append(out.Events, []byte("came "+a.Entity))
		}
	}
	for _, p := range turn.Done(0) {
		out.Events = append(out.Events, []byte("left "+p.Entity))
		out.Departures = append(out.Departures, stream.Departure{To: p.To, Entity: p.Entity,
			Payload: p.Payload(nil)})
	}
	out.Events, out.Departures = append(out.Events, turn.Events...), append(out.Departures, turn.Departures...)
	return out
}

func (d *dock) apply(events [][]byte) {
	for _, e := range events {
		var verb, ship string
		if ours, _ := d.warps.Apply(e); !ours {
			_, _ = fmt.Sscan(string(e), &verb, &ship)
			d.ships[ship] = verb == "came"
		}
	}
}

// Two ships of two docks go to a third one, or neither does.
func Example() {
	docks := []*dock{{id: 1, ships: map[string]bool{"argo": true}, berths: 2},
		{id: 2, ships: map[string]bool{"beagle": true}, berths: 2}, {id: 3, ships: map[string]bool{}, berths: 2}}
	wire := map[fence.TileID][]tile.Arrival{}
	for tick := fence.Tick(1); tick <= 6; tick++ {
		for _, d := range docks {
			arrivals := wire[d.id]
			wire[d.id] = nil
			out := d.play(tick, tile.Inputs{Arrivals: arrivals, Room: func(fence.TileID, int) int { return 100 }},
				func(t *warp.Turn) {
					if tick == 1 && d.id == 1 {
						_ = t.Begin("fleet-7", 20, []warp.Part{{Entity: "argo", From: 1, To: 3},
							{Entity: "beagle", From: 2, To: 3}})
					}
				})
			d.apply(out.Events)
			for _, leaves := range out.Departures {
				wire[leaves.To] = append(wire[leaves.To], tile.Arrival{From: d.id,
					Transfer: stream.Transfer{Departure: leaves}})
			}
		}
	}
	fmt.Println(docks[2].ships, docks[0].warps.Empty(), docks[1].warps.Empty(), docks[2].warps.Empty())
	// Output: map[argo:true beagle:true] true true true
}
