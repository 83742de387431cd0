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

// Few is how many travellers begin in each tile of a world whose game is its actions. Where there are more the game is
// the travellers: an action that is applied leaves no trace in the state, and makes one in crowdShare of them leave.
const (
	Few        = 4
	crowdShare = 128
)

// TravelAmong is what a tile of a world has: n travellers begin in it, and may go to every other tile.
func TravelAmong(tiles []fence.TileID, id fence.TileID, n int) (t Travel) {
	for i, other := range tiles {
		if other != id {
			t.Neighbours = append(t.Neighbours, other)
			continue
		}
		for n := range n {
			t.Born = append(t.Born, fmt.Sprintf("%d.%d", i, n))
		}
	}
	return t
}

// What an event says of a traveller. The names of actions begin with none of these.
const (
	travellerHere = "+" // arrived
	travellerKept = "<" // born, or come back
	travellerGone = "-"
	travelBegun   = "*" // Born are born
	coinGiven     = "$" // by one to another
	travelled     = "#" // how many have arrived, in a snapshot
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
			say(travellerKept, holder(name, Coins))
		}
		return out
	}
	leave := 1
	if len(r.Travel.Born) > Few {
		out.Events, leave = nil, 1+len(r.here)/crowdShare
	}
	left, coins := slices.Clone(r.here), maps.Clone(r.coins)
	if from, to := giver(tick, left, coins); from != "" && len(out.Outcomes) > 0 {
		coins[from], coins[to] = coins[from]-1, coins[to]+1
		say(coinGiven, from+">"+to)
	}
	for i, o := range out.Outcomes {
		if o != stream.Applied || i > 2 || len(r.Travel.Neighbours) == 0 {
			continue
		}
		for n := range min(leave, len(left)) {
			at := choose(tick, len(left), strconv.Itoa(n), left[n%len(left)])
			to := r.Travel.Neighbours[choose(tick, len(r.Travel.Neighbours), left[at])]
			d := stream.Departure{Entity: left[at], To: to, Payload: []byte(strconv.Itoa(coins[left[at]]))}
			left = slices.Delete(left, at, at+1)
			out.Departures = append(out.Departures, d)
			say(travellerGone, d.Entity)
		}
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
	meet(tick, in, &out)
	return out
}

// meet decides about those who come, and takes back those who come back.
func meet(tick fence.Tick, in tile.Inputs, out *tile.Outputs) {
	for _, a := range in.Arrivals {
		if choose(tick, 4, a.Entity, a.ID.String()) == 0 {
			out.Verdicts = append(out.Verdicts, tile.Verdict{Refused: "not today"})
			continue
		}
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
		out.Events = append(out.Events, []byte(travellerHere+a.Entity+"="+string(a.Payload)))
	}
	for _, back := range in.Returns {
		out.Events = append(out.Events, []byte(travellerKept+back.Entity+"="+string(back.Payload)))
	}
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
	case travelled:
		r.arrived, err = strconv.Atoi(name)
	case travellerHere, travellerKept:
		if here {
			return true, fmt.Errorf("traveller %s arrives, and is here", name)
		}
		if event[:1] == travellerHere {
			r.arrived++
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
		all = append(all, travellerKept+holder(name, r.coins[name]))
	}
	if r.arrived > 0 {
		all = append(all, travelled+strconv.Itoa(r.arrived))
	}
	return all
}

// Travellers are those in the tile, with the coins that each has.
func (r *Register) Travellers() map[string]int { return maps.Clone(r.coins) }

// text is the state.
func (r *Register) text() string {
	return strings.Join(append(slices.Clone(r.Applied), r.lines()...), "\n")
}
