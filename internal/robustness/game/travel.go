package game

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Travel is what a tile of a game whose travellers cross borders has beside its Register: some are born in it, and
// leave for its neighbours, which refuse some of them, as it does with theirs.
type Travel struct {
	Born       []string // who begin in the tile
	Neighbours []fence.TileID
}

// What an event says of a traveller. The names of actions begin with none of these.
const (
	travellerHere = "+" // born, arrived or come back
	travellerGone = "-"
	travelBegun   = "*" // Born are born
)

var _ tile.TransferRules = (*Register)(nil)

// Play implements tile.TransferRules.
func (r *Register) Play(tick fence.Tick, in tile.Inputs) (out tile.Outputs) {
	out.Events, out.Outcomes = r.Resolve(tick, in.Intents)
	say := func(what, name string) { out.Events = append(out.Events, []byte(what+name)) }
	if !r.begun && len(r.Travel.Born) > 0 {
		say(travelBegun, "")
		for _, name := range r.Travel.Born {
			say(travellerHere, name)
		}
		return out
	}
	left := slices.Clone(r.here)
	for i, in := range out.Outcomes {
		if len(left) == 0 || len(r.Travel.Neighbours) == 0 || in != stream.Applied || i > 2 {
			continue
		}
		at := choose(tick, len(left), left...)
		to := r.Travel.Neighbours[choose(tick, len(r.Travel.Neighbours), left[at])]
		d := stream.Departure{Entity: left[at], To: to}
		left = slices.Delete(left, at, at+1)
		out.Departures = append(out.Departures, d)
		say(travellerGone, d.Entity)
	}
	if in.Room != nil {
		out.Departures = slices.DeleteFunc(out.Departures, func(d stream.Departure) bool {
			if in.Room(d.To, 0) > len(out.Departures) {
				return false
			}
			said := travellerGone + d.Entity
			out.Events = slices.DeleteFunc(out.Events, func(e []byte) bool { return string(e) == said })
			return true
		})
	}
	for _, a := range in.Arrivals {
		if choose(tick, 4, a.Entity, a.ID.String()) == 0 {
			out.Verdicts = append(out.Verdicts, tile.Verdict{Refused: "not today"})
			continue
		}
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
		say(travellerHere, a.Entity)
	}
	for _, back := range in.Returns {
		say(travellerHere, back.Entity)
	}
	return out
}

// choose is a number below n that follows from a tick and words.
func choose(tick fence.Tick, n int, words ...string) int {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, tick, words) // a hash takes everything
	return int(h.Sum32() % uint32(n))
}

// travels folds an event about a traveller; ok is false for another event.
func (r *Register) travels(event string) (ok bool, err error) {
	name := event[1:]
	at, here := slices.BinarySearch(r.here, name)
	switch event[:1] {
	case travelBegun:
		if r.begun {
			return true, fmt.Errorf("the travellers are born again")
		}
		r.begun = true
	case travellerHere:
		if here {
			return true, fmt.Errorf("traveller %s arrives, and is here", name)
		}
		r.here = slices.Insert(r.here, at, name)
	case travellerGone:
		if !here {
			return true, fmt.Errorf("traveller %s leaves, and is not here", name)
		}
		r.here = slices.Delete(r.here, at, at+1)
	default:
		return false, nil
	}
	return true, nil
}

// lines are the state beside the actions.
func (r *Register) lines() (all []string) {
	if r.begun {
		all = append(all, travelBegun)
	}
	for _, name := range r.here {
		all = append(all, travellerHere+name)
	}
	return all
}

// Travellers are those in the tile, sorted.
func (r *Register) Travellers() []string { return slices.Clone(r.here) }

// text is the state.
func (r *Register) text() string {
	return strings.Join(append(slices.Clone(r.Applied), r.lines()...), "\n")
}
