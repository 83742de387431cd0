package tiletest_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tiletest"
)

const (
	lobby   fence.TileID = 0x85283083fffffff
	theatre fence.TileID = 0x85283087fffffff
)

// hall is a tile of guests, with a door to the other one. A guest comes into the lobby from the street, once.
type hall struct {
	mutant string
	id     fence.TileID
	seats  int
	guests map[string]bool // by name: here; false: it was here
}

func newHall(mutant string) tiletest.NewRules {
	return func(id fence.TileID) (tile.Rules, error) {
		h := &hall{mutant: mutant, id: id, seats: 4} // of six guests in two halls, there is room for two more
		if mutant == "no seat kept" {
			h.seats = 2
		}
		return h, nil
	}
}

func (h *hall) door() fence.TileID {
	if h.id == lobby {
		return theatre
	}
	return lobby
}

// census names the guests of a hall.
func census(rules tile.Rules) (names []string) {
	for name, here := range rules.(*hall).guests {
		if here {
			names = append(names, name)
		}
	}
	return names
}

// goes is a random intent: a guest comes in, or goes through the door.
func goes(r *rand.Rand) tile.Intent {
	who := tile.Intent{Actor: fmt.Sprint("guest-", r.IntN(6)), Body: []byte("door")}
	if r.IntN(4) == 0 {
		who.Tile, who.Body = lobby, []byte("enter")
	}
	return who
}

func (h *hall) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	panic("Play is called")
}

func (h *hall) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	draft, room := maps.Clone(h.guests), in.Room(h.door(), 0)
	taken := len(census(h))
	if h.mutant != "no seat kept" {
		taken += in.UnderWay
	}
	say := func(event, name string) { out.Events = append(out.Events, []byte(event+" "+name)) }
	for _, i := range in.Intents {
		_, was := draft[i.Actor]
		switch {
		case string(i.Body) == "enter" && !was && taken < h.seats:
			draft[i.Actor] = true
			taken++
			say("entered", i.Actor)
			out.Decide(stream.Applied, "")
		case string(i.Body) == "enter":
			out.Decide(stream.Fizzled, "no seat, or not the first time")
		case !draft[i.Actor]:
			out.Decide(stream.Rejected, "not here")
		case room == 0:
			out.Decide(stream.Fizzled, "the door is closed")
		default:
			draft[i.Actor] = false
			room--
			out.Departures = append(out.Departures, stream.Departure{To: h.door(), Entity: i.Actor, Actor: i.Actor})
			if h.mutant != "departs and stays" {
				say("left", i.Actor)
			}
			out.Decide(stream.Applied, "")
		}
	}
	for _, r := range in.Returns {
		if h.mutant == "no seat kept" {
			if taken >= h.seats {
				continue
			}
			taken++
		}
		say("returned", r.Entity)
	}
	for _, a := range in.Arrivals {
		if taken >= h.seats {
			out.Verdicts = append(out.Verdicts, tile.Verdict{Refused: "full"})
			continue
		}
		taken++
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
		if h.mutant != "taken without an event" {
			say("arrived", a.Entity)
		}
	}
	return out
}

func (h *hall) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		event, name, _ := strings.Cut(string(e), " ")
		h.guests[name] = event != "left"
	}
	return nil
}

func (h *hall) Snapshot() (b []byte, err error) {
	for _, name := range slices.Sorted(maps.Keys(h.guests)) {
		b = fmt.Appendf(b, "%s %t\n", name, h.guests[name])
	}
	return b, nil
}

func (h *hall) Restore(snapshot []byte) error {
	h.guests = map[string]bool{}
	for line := range strings.Lines(string(snapshot)) {
		var name string
		var here bool
		if _, err := fmt.Sscanf(line, "%s %t\n", &name, &here); err != nil {
			return err
		}
		h.guests[name] = here
	}
	return nil
}

// TestGuestsCross is all that a game needs whose entities travel. With -v it says how often each kind came up.
func TestGuestsCross(t *testing.T) { tiletest.Cross(t, newHall(""), goes, census, nil) }

// TestTravellersRun: Run asks Play of rules that have it, and their tile's border is closed.
func TestTravellersRun(t *testing.T) {
	tiletest.Run(t, newHall(""), goes1, &tiletest.Config{Tile: lobby, Ticks: 60})
}

// goes1 is goes in the lobby.
func goes1(r *rand.Rand) tile.Intent {
	in := goes(r)
	in.Tile = lobby
	return in
}

// TestWrongCrossingsAreCaught: each game that forgets a part of one of its three branches fails with the entity that is
// lost or doubled, and what to look for.
func TestWrongCrossingsAreCaught(t *testing.T) {
	for mutant, want := range map[string][]string{
		"no seat kept":           {"An entity that comes back is not in the tile", `refused with "`, "Inputs.UnderWay"},
		"taken without an event": {"An arrival is taken, and not in the tile", "without the event"},
		"departs and stays":      {"An entity is in a tile and under way", "takes the entity out"},
	} {
		t.Run(mutant, func(t *testing.T) {
			err := tiletest.CrossViolation(t, newHall(mutant), goes, census, nil)
			require.Error(t, err)
			for _, words := range append(want, "at tick ") {
				assert.ErrorContains(t, err, words)
			}
		})
	}
	err := tiletest.CrossViolation(t, newPurse(""), coins, census, nil)
	assert.ErrorContains(t, err, "do not travel")
}

func newGuard(mutant string, peeks *[2]int) tiletest.NewRules {
	return func(id fence.TileID) (tile.Rules, error) {
		h, err := newHall(mutant)(id)
		return &guard{h.(*hall), peeks}, err
	}
}

// guard is a hall whose rules look through the door. It counts how often nothing is seen, and something.
type guard struct {
	*hall
	peeks *[2]int
}

func (g *guard) Sights() []tile.Sight {
	return []tile.Sight{{Tile: g.door(), View: func() tile.View {
		if g.mutant == "a view that fails" {
			return unreadable{&hall{}}
		}
		return &hall{}
	}}}
}

// unreadable is a view that cannot be restored.
type unreadable struct{ *hall }

func (unreadable) Restore([]byte) error { return errors.New("as asked") }

func (g *guard) Play(tick fence.Tick, in tile.Inputs) tile.Outputs {
	if rim := in.Rim(g.door()); rim.View == nil {
		g.peeks[0]++
	} else {
		g.peeks[1]++
		if g.mutant == "writes to what it sees" {
			rim.View.(*hall).guests["a stranger"] = true
		}
	}
	return g.hall.Play(tick, in)
}

// TestRulesThatLook: rules see other tiles, or nothing; what they see is not theirs to change.
func TestRulesThatLook(t *testing.T) {
	of := func(rules tile.Rules) []string { return census(rules.(*guard).hall) }
	var peeks [2]int
	require.NoError(t, tiletest.CrossViolation(t, newGuard("", &peeks), goes, of, nil))
	assert.Positive(t, peeks[0])
	assert.Positive(t, peeks[1])
	tiletest.Run(t, newGuard("", &peeks), goes1, &tiletest.Config{Tile: lobby, Ticks: 20})
	for mutant, want := range map[string]string{
		"writes to what it sees": "Play changes what it sees of tile",
		"a view that fails":      "A view cannot be restored",
	} {
		assert.ErrorContains(t, tiletest.CrossViolation(t, newGuard(mutant, &peeks), goes, of, nil), want)
	}
}
