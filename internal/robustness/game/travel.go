package game

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Travel is what a tile of a game whose travellers cross borders has beside its Register: some are born in it, with
// coins which they give each other, and leave for its neighbours, which refuse some of them, as it does with theirs.
type Travel struct {
	Born       []string // who begin in the tile
	Neighbours []fence.TileID
}

// TravelAmong is what a tile of a world has: four travellers begin in it, and may go to every other tile.
func TravelAmong(tiles []fence.TileID, id fence.TileID) (t Travel) {
	for i, other := range tiles {
		if other != id {
			t.Neighbours = append(t.Neighbours, other)
			continue
		}
		for n := range 4 {
			t.Born = append(t.Born, fmt.Sprintf("%d.%d", i, n))
		}
	}
	return t
}

// What an event says of a traveller. The names of actions begin with none of these.
const (
	travellerHere = "+" // born, arrived or come back
	travellerGone = "-"
	travelBegun   = "*" // Born are born
	coinGiven     = "$" // by one to another
)

// Coins is how many coins a traveller is born with.
const Coins = 3

var _ tile.TransferRules = (*Register)(nil)

// Play implements tile.TransferRules.
func (r *Register) Play(tick fence.Tick, in tile.Inputs) (out tile.Outputs) {
	out.Events, out.Outcomes = r.Resolve(tick, in.Intents)
	say := func(what, name string) { out.Events = append(out.Events, []byte(what+name)) }
	if !r.begun && len(r.Travel.Born) > 0 {
		say(travelBegun, "")
		for _, name := range r.Travel.Born {
			say(travellerHere, holder(name, Coins))
		}
		return out
	}
	left, coins := slices.Clone(r.here), maps.Clone(r.coins)
	if from, to := giver(tick, left, coins); from != "" && len(out.Outcomes) > 0 {
		coins[from], coins[to] = coins[from]-1, coins[to]+1
		say(coinGiven, from+">"+to)
	}
	for i, in := range out.Outcomes {
		if len(left) == 0 || len(r.Travel.Neighbours) == 0 || in != stream.Applied || i > 2 {
			continue
		}
		at := choose(tick, len(left), left...)
		to := r.Travel.Neighbours[choose(tick, len(r.Travel.Neighbours), left[at])]
		d := stream.Departure{Entity: left[at], To: to, Payload: []byte(strconv.Itoa(coins[left[at]]))}
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
		say(travellerHere, a.Entity+"="+string(a.Payload))
	}
	for _, back := range in.Returns {
		say(travellerHere, back.Entity+"="+string(back.Payload))
	}
	return out
}

// giver is who gives a coin at a tick, and to whom; empty: no coin is given.
func giver(tick fence.Tick, here []string, coins map[string]int) (from, to string) {
	if len(here) < 2 {
		return "", ""
	}
	from, to = here[choose(tick, len(here), "from")], here[choose(tick, len(here), "to")]
	if from == to || coins[from] == 0 {
		return "", ""
	}
	return from, to
}

// choose is a number below n that follows from a tick and words.
func choose(tick fence.Tick, n int, words ...string) int {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, tick, words) // a hash takes everything
	return int(h.Sum32() % uint32(n))
}

// travels folds an event about a traveller; ok is false for another event.
func (r *Register) travels(event string) (ok bool, err error) {
	name, rest, _ := strings.Cut(event[1:], "=")
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
		if r.coins == nil {
			r.coins = map[string]int{}
		}
		r.coins[name], err = strconv.Atoi(rest)
	case travellerGone:
		if !here {
			return true, fmt.Errorf("traveller %s leaves, and is not here", name)
		}
		r.here = slices.Delete(r.here, at, at+1)
		delete(r.coins, name)
	case coinGiven:
		from, to, _ := strings.Cut(name, ">")
		if r.coins[from] == 0 || !slices.Contains(r.here, to) {
			return true, fmt.Errorf("traveller %s gives a coin to %s, of %v", from, to, r.coins)
		}
		r.coins[from], r.coins[to] = r.coins[from]-1, r.coins[to]+1
	default:
		return false, nil
	}
	return true, err
}

// holder names a traveller with its coins.
func holder(name string, coins int) string { return name + "=" + strconv.Itoa(coins) }

// lines are the state beside the actions.
func (r *Register) lines() (all []string) {
	if r.begun {
		all = append(all, travelBegun)
	}
	for _, name := range r.here {
		all = append(all, travellerHere+holder(name, r.coins[name]))
	}
	return all
}

// Travellers are those in the tile, with the coins that each has.
func (r *Register) Travellers() map[string]int { return maps.Clone(r.coins) }

// text is the state.
func (r *Register) text() string {
	return strings.Join(append(slices.Clone(r.Applied), r.lines()...), "\n")
}
