package game_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/region"
)

// coast is a tile, of which a view sees everything.
type coast struct {
	*match
	outbox   []stream.Transfer // not decided yet
	returns  []tile.Return     // refused, and not taken back yet
	departed int

	states  [][]byte // before each entry
	entries []fence.Entry
	some    *game.View // of some areas
	areas   fence.AreaSet
}

// look has the view of some areas look at others, which it opens from an older snapshot, so that they catch up.
func (c *coast) look(r *rand.Rand) {
	last := c.entries[len(c.entries)-1]
	require.NoError(c.t, c.some.Apply(&last))
	if r.IntN(3) == 0 {
		held := c.areas
		c.areas = fence.Areas(fence.Area(1+r.IntN(3)), fence.Area(1+r.IntN(3)))
		c.some.Keep(c.areas)
		if fresh, some := c.areas.Without(held); some {
			from := max(0, len(c.entries)-1-r.IntN(9))
			require.NoError(c.t, c.some.Open(c.states[from], fresh))
			for _, e := range c.entries[from:] {
				e.Payload, _ = fence.SelectParts(e.Payload, fresh)
				require.NoError(c.t, c.some.Apply(&e))
			}
		}
	}
	all := c.rules.Digests()
	for a, seen := range c.some.Digests() {
		require.Equal(c.t, all[a], seen, "area %d", a)
	}
	for _, ship := range c.some.Ships() {
		mine, ok := c.some.ShipOf(ship.Owner)
		require.True(c.t, ok)
		require.Equal(c.t, ship, mine)
	}
}

// strait is two tiles, of which each cell touches the one of the same number across the border.
type strait struct {
	t      *testing.T
	coasts [2]*coast
}

func newStrait(t *testing.T, radius int) *strait {
	s := &strait{t: t}
	for i := range s.coasts {
		s.coasts[i] = &coast{match: newMatch(t, radius)}
		across := map[int][]region.Place{}
		for cell := range s.coasts[i].ground.Len() {
			across[cell] = []region.Place{{Tile: fence.TileID(2 - i), Cell: cell}}
		}
		s.coasts[i].ground.across = across
		s.coasts[i].ground.id, s.coasts[i].ground.others = fence.TileID(1+i), []fence.TileID{fence.TileID(2 - i)}
	}
	return s
}

func sail(actor string, to fence.TileID, cell uint16) tile.Intent {
	return order(actor, game.Order{Kind: game.Sail, Tile: to, Cell: cell})
}

// tick plays a tick of a coast, which is presented with so many of the ships that are under way to it.
func (s *strait) tick(i, arrivals int, intents ...tile.Intent) []stream.Outcome {
	s.t.Helper()
	c, other := s.coasts[i], s.coasts[1-i]
	in := tile.Inputs{Intents: intents, Returns: c.returns, UnderWay: len(c.outbox) + len(c.returns),
		Room: func(to fence.TileID, bytes int) int {
			require.LessOrEqual(s.t, bytes, 256)
			return 3
		}}
	for _, t := range other.outbox[:min(arrivals, len(other.outbox))] {
		in.Arrivals = append(in.Arrivals, tile.Arrival{Transfer: t, From: fence.TileID(2 - i)})
	}
	c.tick++
	state, err := c.rules.Snapshot()
	require.NoError(s.t, err)
	before := c.rules.Digest()
	out := c.rules.Play(c.tick, in)
	require.Equal(s.t, before, c.rules.Digest(), "deciding changes nothing")
	require.Len(s.t, out.Verdicts, len(in.Arrivals))
	require.LessOrEqual(s.t, len(out.Departures), 3)
	batch := stream.Batch{Events: out.Events}
	batch.Divide(c.rules.Area)
	require.NoError(s.t, c.rules.Apply(c.tick, batch.Events))
	payload, _, err := batch.Encode()
	require.NoError(s.t, err)
	entry := fence.Entry{Tick: c.tick, Payload: payload}
	require.NoError(s.t, c.view.Apply(&entry))
	require.Equal(s.t, c.rules.Digest(), c.view.Digest())
	c.states, c.entries = append(c.states, state), append(c.entries, entry)
	snapshot, err := c.rules.Snapshot()
	require.NoError(s.t, err)
	require.NoError(s.t, c.rules.Restore(snapshot), "a successor begins with it")
	c.returns = nil
	for n, v := range out.Verdicts {
		if t := other.outbox[n]; v.Refused != "" {
			other.returns = append(other.returns, tile.Return{Transfer: t, Reason: v.Refused})
		}
	}
	other.outbox = other.outbox[len(out.Verdicts):]
	for _, d := range out.Departures {
		require.NoError(s.t, d.Validate(fence.TileID(1+i)))
		require.LessOrEqual(s.t, len(d.Payload), 256)
		c.outbox = append(c.outbox, stream.Transfer{Departure: d})
		c.departed++
	}
	return out.Outcomes
}

func (s *strait) census() (c game.Census, underWay int) {
	for _, coast := range s.coasts {
		c.Add(coast.view)
		underWay += len(coast.outbox) + len(coast.returns)
	}
	return c, underWay
}

func TestAShipSailsAcross(t *testing.T) {
	s := newStrait(t, 1)
	ada := func(o game.Order) tile.Intent { return order("ada", o) }
	s.tick(0, 0, ada(game.Order{Kind: game.Spawn, Cell: 3}))
	shield := ada(game.Order{Kind: game.Shield})
	assert.Equal(t, []stream.Outcome{stream.Applied, stream.Fizzled}, s.tick(0, 0, shield, sail("ada", 2, 4)),
		"another cell's border")
	assert.Equal(t, []stream.Outcome{stream.Rejected}, s.tick(1, 0, sail("ada", 1, 3)), "no ship here")
	assert.Equal(t, []stream.Outcome{stream.Applied}, s.tick(0, 0, sail("ada", 2, 3)))
	_, here := s.coasts[0].view.ShipOf("ada")
	assert.False(t, here)
	c, underWay := s.census()
	assert.Equal(t, []int{1, 0, 0, 1}, []int{c.Born, c.Afloat, c.Sunk, underWay})
	assert.Equal(t, []stream.Outcome{stream.Fizzled}, s.tick(0, 0, ada(game.Order{Kind: game.Spawn})),
		"it gets no other ship")
	s.tick(1, 9)
	assert.Equal(t, game.Ship{ID: 1, Owner: "ada", Cell: 3, Hull: game.MaxHull, Shield: game.ShieldCharge,
		Home: 1, Hop: 1},
		s.coasts[1].ship("ada"))
	c, underWay = s.census()
	assert.Equal(t, []int{1, 1, 0, 0}, []int{c.Born, c.Afloat, c.Sunk, underWay})
	assert.Equal(t, []stream.Outcome{stream.Applied}, s.tick(1, 9, sail("ada", 1, 3)))
	s.tick(0, 9)
	assert.Equal(t, uint16(3), s.coasts[0].ship("ada").Cell)
}

func TestAShipComesBackFromFullWater(t *testing.T) {
	s := newStrait(t, 0)
	spawn := game.Order{Kind: game.Spawn}
	s.tick(0, 0, order("ada", spawn))
	s.tick(1, 0, order("bob", spawn))
	s.tick(0, 0, sail("ada", 2, 0))
	assert.Equal(t, []stream.Outcome{stream.Fizzled}, s.tick(0, 0, order("eve", spawn)), "ada's cell is kept")
	s.tick(1, 1)
	require.Equal(t, "the water is full", s.coasts[0].returns[0].Reason)
	s.tick(0, 0)
	assert.Equal(t, uint32(1), s.coasts[0].ship("ada").ID)
}

func TestAShipSinksIfItsOwnerHasAnother(t *testing.T) {
	s := newStrait(t, 1)
	spawn := order("ada", game.Order{Kind: game.Spawn})
	s.tick(0, 0, spawn)
	s.tick(0, 0, sail("ada", 2, 0))
	s.tick(1, 1)
	s.tick(1, 0, sail("ada", 1, 0))
	s.tick(0, 0)
	s.tick(1, 0, spawn) // which does not know of the first
	b := s.coasts[1]
	b.returns, b.outbox = []tile.Return{{Transfer: b.outbox[0]}}, nil
	s.tick(1, 0)
	c, underWay := s.census()
	assert.Equal(t, []int{2, 1, 1, 0}, []int{c.Born, c.Afloat, c.Sunk, underWay})
	lost, doubled := c.Wrong()
	assert.Empty(t, lost)
	assert.Empty(t, doubled)
}

func TestCensusFindsWhatIsWrong(t *testing.T) {
	s := newStrait(t, 1)
	s.tick(0, 0, order("ada", game.Order{Kind: game.Spawn}), order("bob", game.Order{Kind: game.Spawn}))
	s.tick(0, 0, sail("ada", 2, s.coasts[0].ship("ada").Cell))
	outbox := s.coasts[0].outbox
	s.tick(1, 1)
	s.coasts[0].returns = []tile.Return{{Transfer: outbox[0]}}
	s.tick(0, 0)
	c, _ := s.census()
	lost, doubled := c.Wrong()
	assert.Empty(t, lost)
	assert.Equal(t, []string{"ada"}, doubled)
	c = game.Census{}
	c.Add(s.coasts[0].view)
	s.coasts[0].outbox, s.coasts[0].returns = nil, nil
	s.tick(0, 0, sail("bob", 2, s.coasts[0].ship("bob").Cell))
	c = game.Census{}
	c.Add(s.coasts[0].view)
	lost, _ = c.Wrong()
	assert.Equal(t, []string{"bob"}, lost)
}

// TestEveryShipIsSomewhere: ships sail to and fro between two small tiles, which are often full, and fire.
func TestEveryShipIsSomewhere(t *testing.T) {
	for _, n := range seed.Many(t, 20) {
		r := rand.New(rand.NewPCG(n, 3))
		s := newStrait(t, r.IntN(3))
		for _, c := range s.coasts {
			c.some, _ = game.NewView(c.ground)
			c.areas = fence.Areas(1)
			c.some.Keep(c.areas)
		}
		names := 1 + r.IntN(2*s.coasts[0].ground.Len())
		for range 300 {
			i := r.IntN(2)
			var intents []tile.Intent
			for range r.IntN(6) {
				actor := fmt.Sprint("actor", r.IntN(names))
				o := game.Order{Kind: game.OrderKind(1 + r.IntN(6)), Cell: uint16(r.IntN(s.coasts[0].ground.Len())),
					Target: uint32(1 + r.IntN(7)), Tile: fence.TileID(2 - i)}
				if ship, ok := s.coasts[i].view.ShipOf(actor); ok && r.IntN(2) == 0 {
					o = game.Order{Kind: game.Sail, Cell: ship.Cell, Tile: fence.TileID(2 - i)}
				}
				intents = append(intents, order(actor, o))
			}
			s.tick(i, r.IntN(4), intents...)
			if s.coasts[i].ground.Len() == 19 { // three areas
				s.coasts[i].look(r)
			}
			c, underWay := s.census()
			require.Equal(t, c.Born, c.Afloat+c.Sunk+underWay)
		}
		for i := range 8 { // what is under way comes to rest
			s.tick(i%2, 99)
		}
		c, underWay := s.census()
		lost, doubled := c.Wrong()
		require.Empty(t, lost)
		require.Empty(t, doubled)
		require.Zero(t, underWay)
		require.Positive(t, s.coasts[0].departed+s.coasts[1].departed)
	}
}
