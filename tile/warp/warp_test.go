package warp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// The model plays a warp over tiles whose transfers arrive once, and in order between two of them. It searches every
// order of ticks, what each tile answers when it is asked, borders that are closed for a tick, and the deadline.

// place is a tile: its part in warps, and the entities in it.
type place struct {
	State State
	Here  []string `json:",omitempty"`
}

type world struct {
	Tiles map[fence.TileID]*place
	Wire  map[string][]stream.Departure // by "from>to", in order
	Late  bool                          // the deadline has passed
	Sails int                           // how often x may still go by itself
	way   []string
}

func (w *world) clone(text string, args ...any) *world {
	c := &world{Tiles: map[fence.TileID]*place{}, Wire: map[string][]stream.Departure{}, Late: w.Late, Sails: w.Sails}
	for id, p := range w.Tiles {
		c.Tiles[id] = &place{State: p.State.clone(), Here: p.Here}
	}
	for way, all := range w.Wire {
		if len(all) > 0 {
			c.Wire[way] = slices.Clip(all)
		}
	}
	c.way = append(slices.Clip(w.way), fmt.Sprintf(text, args...))
	return c
}

// play is a tick of a tile that takes the first message from another tile (0: none), agrees or not, and sends nothing
// to a tile whose border is closed.
func (w *world) play(t *testing.T, id, from fence.TileID, agrees bool, closed fence.TileID) {
	p := w.Tiles[id]
	tick := fence.Tick(1)
	if w.Late {
		tick = 100
	}
	room := func(to fence.TileID, _ int) int {
		if to == closed {
			return 0
		}
		return 10
	}
	turn := p.State.Turn(id, tick, room, func(a Ask) bool {
		for _, l := range a.Leave {
			if !slices.Contains(p.Here, l.Entity) {
				return false
			}
		}
		return agrees
	})
	here := slices.Clone(p.Here)
	if from != 0 {
		way := fmt.Sprint(from, ">", id)
		d := w.Wire[way][0]
		w.Wire[way] = w.Wire[way][1:]
		a := tile.Arrival{From: from, Transfer: stream.Transfer{Departure: d}}
		if !turn.Arrive(a) {
			require.Equal(t, len(d.Payload) > 0, turn.Seated(a), "%s:\n%s", d.Entity, strings.Join(w.way, "\n"))
			require.Empty(t, Own(d.Payload))
			here = append(here, d.Entity)
		}
	}
	for _, l := range turn.Done(10) {
		i := slices.Index(here, l.Entity)
		require.GreaterOrEqual(t, i, 0)
		here = slices.Delete(here, i, i+1)
		turn.Departures = append(turn.Departures, stream.Departure{To: l.To, Entity: l.Entity,
			Payload: l.Payload(nil)})
	}
	for _, e := range turn.Events {
		ours, err := p.State.Apply(e)
		require.True(t, ours)
		require.NoError(t, err)
	}
	want, _ := json.Marshal(&turn.now)
	got, _ := json.Marshal(&p.State)
	require.Equal(t, string(want), string(got), "what the turn saw is what its events make")
	slices.Sort(here)
	p.Here = here
	for _, d := range turn.Departures {
		way := fmt.Sprint(id, ">", d.To)
		w.Wire[way] = append(w.Wire[way], d)
	}
}

func (w *world) next(t *testing.T) (all []*world) {
	if !w.Late {
		c := w.clone("the deadline passes")
		c.Late = true
		all = append(all, c)
	}
	ids := slices.Sorted(maps.Keys(w.Tiles))
	for _, id := range ids {
		p := w.Tiles[id]
		for _, to := range []fence.TileID{1, 3} {
			if w.Sails > 0 && to != id && slices.Contains(p.Here, "x") && !p.State.Held("x") {
				c := w.clone("x sails from %v to %v", id, to)
				c.Sails--
				c.Tiles[id].Here = slices.DeleteFunc(slices.Clone(p.Here), func(s string) bool { return s == "x" })
				way := fmt.Sprint(id, ">", to)
				c.Wire[way] = append(c.Wire[way], stream.Departure{To: to, Entity: "x"})
				all = append(all, c)
			}
		}
		for _, from := range append([]fence.TileID{0}, ids...) {
			if from != 0 && len(w.Wire[fmt.Sprint(from, ">", id)]) == 0 {
				continue
			}
			for _, agrees := range []bool{true, false} {
				for _, closed := range append([]fence.TileID{0}, ids...) {
					if from == 0 && (!agrees || closed != 0) || closed == id {
						continue
					}
					c := w.clone("%v plays, with a message of %v, agrees %v, closed %v", id, from, agrees, closed)
					c.play(t, id, from, agrees, closed)
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// key is the state without the way to it.
func (w *world) key(t *testing.T) string {
	maps.DeleteFunc(w.Wire, func(_ string, all []stream.Departure) bool { return len(all) == 0 })
	b, err := json.Marshal(w)
	require.NoError(t, err)
	return string(b)
}

// atRest plays until nothing is under way.
func (w *world) atRest(t *testing.T) *world {
	c := w.clone("comes to rest")
	c.Late = true
	for range 20 {
		quiet := true
		for _, p := range c.Tiles {
			quiet = quiet && p.State.Empty()
		}
		for _, all := range c.Wire {
			quiet = quiet && len(all) == 0
		}
		if quiet {
			break
		}
		for _, id := range slices.Sorted(maps.Keys(c.Tiles)) {
			c.play(t, id, 0, true, 0)
			for _, from := range slices.Sorted(maps.Keys(c.Tiles)) {
				for len(c.Wire[fmt.Sprint(from, ">", id)]) > 0 {
					c.play(t, id, from, true, 0)
				}
			}
		}
	}
	return c
}

func TestAllArriveOrNoneLeaves(t *testing.T) {
	for name, parts := range map[string][]Part{
		"the leader holds one":        {{"x", 1, 3}, {"y", 2, 3}},
		"the leader only leads":       {{"y", 2, 3}},
		"there and back":              {{"x", 1, 2}, {"y", 2, 1}},
		"the leader's is not here":    {{"z", 1, 2}, {"y", 2, 1}},
		"to the leader, out of order": {{"y", 2, 1}, {"w", 3, 1}},
		"one also goes by itself":     {{"x", 1, 3}, {"y", 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{Tiles: map[fence.TileID]*place{1: {Here: []string{"x"}}, 2: {Here: []string{"y"}},
				3: {Here: []string{"w"}}}, Wire: map[string][]stream.Departure{}}
			if name == "one also goes by itself" {
				w.Sails = 2 // there, and back
			}
			begin := w.Tiles[1].State.Turn(1, 1, nil, func(a Ask) bool {
				return !slices.ContainsFunc(a.Leave, func(p Part) bool { return p.Entity == "z" })
			})
			require.NoError(t, begin.Begin("w1", 50, parts))
			for _, e := range begin.Events {
				_, err := w.Tiles[1].State.Apply(e)
				require.NoError(t, err)
			}
			seen, queue, went, stayed := map[string]bool{w.key(t): true}, []*world{w}, 0, 0
			for len(queue) > 0 && len(seen) < 4000 {
				w, queue = queue[0], queue[1:]
				rest := w.atRest(t)
				moved := 0
				for _, p := range parts {
					if slices.Contains(rest.Tiles[p.To].Here, p.Entity) {
						moved++
					}
				}
				if name != "one also goes by itself" {
					require.Contains(t, []int{0, len(parts)}, moved, "%s", strings.Join(w.way, "\n"))
				}
				if moved > 0 {
					went++
				} else {
					stayed++
				}
				count := 0
				var tallies []Tally
				for id, p := range rest.Tiles {
					tallies = append(tallies, p.State.Tally())
					require.True(t, p.State.Empty(), "tile %v holds on:\n%s\n%s", id, strings.Join(w.way, "\n"),
						rest.key(t))
					count += len(p.Here)
				}
				require.True(t, Whole(tallies...), strings.Join(w.way, "\n"))
				require.Equal(t, 3, count, strings.Join(w.way, "\n"))
				for _, c := range w.next(t) {
					if k := c.key(t); !seen[k] {
						seen[k] = true
						queue = append(queue, c)
					}
				}
			}
			t.Log(len(seen), "states, in", went, "of which all go, in", stayed, "none")
			assert.Positive(t, stayed)
			assert.True(t, went > 0 || name == "the leader's is not here")
		})
	}
}

func TestAWarpThatCannotBegin(t *testing.T) {
	turn := (&State{}).Turn(1, 1, func(fence.TileID, int) int { return 1 }, func(Ask) bool { return true })
	for name, err := range map[string]error{
		"no id":     turn.Begin("", 9, []Part{{"x", 1, 2}}),
		"colon":     turn.Begin("a:b", 9, []Part{{"x", 1, 2}}),
		"no parts":  turn.Begin("a", 9, nil),
		"too many":  turn.Begin("a", 9, make([]Part, MaxParts+1)),
		"itself":    turn.Begin("a", 9, []Part{{"x", 2, 2}}),
		"nowhere":   turn.Begin("a", 9, []Part{{"x", 0, 2}}),
		"twice":     turn.Begin("a", 9, []Part{{"x", 1, 2}, {"x", 1, 3}}),
		"no entity": turn.Begin("a", 9, []Part{{"", 1, 2}}),
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	assert.Empty(t, turn.Events)
	require.NoError(t, turn.Begin("a", 9, []Part{{"x", 1, 2}}))
	require.ErrorIs(t, turn.Begin("a", 9, []Part{{"y", 1, 2}}), fence.ErrInvalidArgument)
	require.True(t, turn.Held("x"), "this tile has voted for itself")

	// Of what it cannot read, and of what does not follow, nothing comes.
	events := len(turn.Events)
	assert.True(t, turn.Arrive(tile.Arrival{From: 2, Transfer: stream.Transfer{Departure: stream.Departure{
		Entity: Prefix + "vote:a:2", Payload: []byte("{")}}}))
	assert.True(t, turn.Arrive(tile.Arrival{From: 5, Transfer: stream.Transfer{Departure: stream.Departure{
		Entity: Prefix + "tell:a:5", Payload: []byte(`{"kind":"tell","warp":"a","yes":true}`)}}}))
	assert.True(t, turn.Arrive(tile.Arrival{From: 5, Transfer: stream.Transfer{Departure: stream.Departure{
		Entity: Prefix + "vote:a:5", Payload: []byte(`{"kind":"vote","warp":"a","yes":true}`)}}}))
	assert.Len(t, turn.Events, events)
	ours, err := new(State).Apply([]byte(Prefix + `{"step":"told","warp":"a"}`))
	assert.True(t, ours)
	require.Error(t, err)
	ours, err = new(State).Apply([]byte("the game's own"))
	assert.False(t, ours)
	require.NoError(t, err)
}

// A tile that cannot be asked stays, and so do all; a vote or a decision that could not be read is sent again.
func TestAMessageThatComesBack(t *testing.T) {
	var s State
	room := func(fence.TileID, int) int { return 10 }
	yes := func(Ask) bool { return true }
	turn := s.Turn(1, 1, room, yes)
	require.NoError(t, turn.Begin("a", 9, []Part{{"x", 2, 3}}))
	turn.Done(0)
	require.Len(t, turn.Departures, 2)
	for _, e := range turn.Events {
		_, err := s.Apply(e)
		require.NoError(t, err)
	}
	turn2 := s.Turn(1, 2, room, yes)
	require.True(t, turn2.Return(tile.Return{Transfer: stream.Transfer{Departure: turn.Departures[0]}}))
	turn2.Done(0)
	require.Len(t, turn2.Departures, 2, "both are told to stay")
	for _, d := range turn2.Departures {
		assert.Contains(t, d.Entity, "tell")
		assert.NotContains(t, string(d.Payload), "yes")
	}
	turn3 := s.Turn(1, 3, room, yes)
	require.True(t, turn3.Return(tile.Return{Transfer: stream.Transfer{Departure: turn2.Departures[0]}}))
	turn3.Done(0)
	assert.Contains(t, []string{turn3.Departures[0].Entity, turn3.Departures[len(turn3.Departures)-1].Entity},
		turn2.Departures[0].Entity)
	require.False(t, turn3.Return(tile.Return{Transfer: stream.Transfer{Departure: stream.Departure{Entity: "x"}}}))
}

func TestASplitWarpIsNotWhole(t *testing.T) {
	parts := []Part{{"x", 1, 3}, {"y", 2, 3}}
	var leads, leaves, comes Tally
	leads.decide("w", parts, true)
	assert.False(t, Whole(leads), "it has not moved")
	for _, p := range parts {
		leaves.Leave -= number("w", p.Entity)
		assert.False(t, Whole(leads, leaves, comes))
		comes.Come -= number("w", p.Entity)
	}
	assert.True(t, Whole(comes, leads, leaves))
	leads.decide("v", parts, false)
	assert.True(t, Whole(comes, leads, leaves), "nothing of it moves")
	assert.Equal(t, []uint64{1, 1}, []uint64{leads.Gone, leads.CalledOff})
}
