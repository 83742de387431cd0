package game_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/region"
)

// match is a game in progress: rules whose every tick is applied at once.
type match struct {
	t      *testing.T
	ground *disk
	rules  *game.Rules
	view   *game.View
	tick   fence.Tick
	events []game.Event // of the last tick
}

func newMatch(t *testing.T, radius int) *match {
	m := &match{t: t, ground: newDisk(radius)}
	var err error
	m.rules, err = game.NewRules(m.ground)
	require.NoError(t, err)
	m.view, err = game.NewView(m.ground)
	require.NoError(t, err)
	return m
}

func order(actor string, o game.Order) tile.Intent {
	in := tile.Intent{Tile: 1, Actor: actor, Body: o.Encode()}
	if o.Kind.Card() {
		in.ActionID = "action of " + actor
	}
	return in
}

func (m *match) play(intents ...tile.Intent) []stream.Outcome {
	m.t.Helper()
	m.tick++
	events, outcomes := m.rules.Resolve(m.tick, intents)
	require.Len(m.t, outcomes, len(intents))
	batch := stream.Batch{Events: events}
	batch.Divide(m.rules.Area)
	require.NoError(m.t, m.rules.Apply(m.tick, batch.Events))
	payload, _, err := batch.Encode()
	require.NoError(m.t, err)
	require.NoError(m.t, m.view.Apply(&fence.Entry{Tick: m.tick, Payload: payload}))
	require.Equal(m.t, m.rules.Digest(), m.view.Digest())
	m.events = nil
	for _, p := range events {
		e, err := game.DecodeEvent(p)
		require.NoError(m.t, err)
		m.events = append(m.events, e)
	}
	return outcomes
}

func (m *match) one(in tile.Intent) stream.Outcome {
	m.t.Helper()
	return m.play(in)[0]
}

func (m *match) ship(owner string) game.Ship {
	m.t.Helper()
	s, ok := m.view.ShipOf(owner)
	require.True(m.t, ok, "%s has no ship", owner)
	return s
}

// place brings a ship to a cell.
func (m *match) place(owner string, cell uint16) {
	m.t.Helper()
	if _, ok := m.view.ShipOf(owner); !ok {
		require.Equal(m.t, stream.Applied, m.one(order(owner, game.Order{Kind: game.Spawn})))
	}
	if m.ship(owner).Cell != cell {
		require.Equal(m.t, stream.Applied, m.one(order(owner, game.Order{Kind: game.Warp, Cell: cell})))
	}
}

func TestSpawnGivesAnActorOneShip(t *testing.T) {
	m := newMatch(t, 1)
	spawn := game.Order{Kind: game.Spawn}
	assert.Equal(t, []stream.Outcome{stream.Applied, stream.Fizzled}, m.play(order("ada", spawn), order("ada", spawn)))
	assert.Equal(t, stream.Fizzled, m.one(order("ada", spawn)))
	for i := range 6 {
		assert.Equal(t, stream.Applied, m.one(order(fmt.Sprint("crew", i), spawn)))
	}
	assert.Equal(t, stream.Fizzled, m.one(order("late", spawn)), "seven cells hold seven ships")
	assert.Len(t, m.view.Ships(), 7)
	assert.Equal(t, uint8(game.MaxHull), m.ship("ada").Hull)
}

func TestMoveIsOneStepToAFreeCell(t *testing.T) {
	m := newMatch(t, 2)
	m.place("ada", 9)
	m.place("bob", 10)
	require.Equal(t, 1, m.ground.distance(9, 10))
	move := func(actor string, cell uint16) tile.Intent {
		return order(actor, game.Order{Kind: game.Move, Cell: cell})
	}

	assert.Equal(t, stream.Fizzled, m.one(move("ada", 10)), "taken")
	assert.Equal(t, stream.Fizzled, m.one(move("ada", 9)), "it is there already")
	assert.Equal(t, stream.Fizzled, m.one(move("ada", 0)), "too far")
	assert.Equal(t, stream.Rejected, m.one(move("ada", 19)), "no such cell")
	assert.Equal(t, stream.Rejected, m.one(move("eve", 8)), "no ship")
	assert.Equal(t, []stream.Outcome{stream.Applied, stream.Fizzled}, m.play(move("ada", 8), move("ada", 9)),
		"one a tick")
	assert.Equal(t, uint16(8), m.ship("ada").Cell)
	assert.Equal(t, []stream.Outcome{stream.Fizzled, stream.Fizzled}, m.play(move("ada", 0), move("ada", 9)),
		"one attempt a tick")
	assert.Equal(t, stream.Applied, m.one(move("bob", 9)), "the cell was left")
}

func TestContestedCellsAreSharedOutFairly(t *testing.T) {
	m := newMatch(t, 2)
	m.place("ada", 8)
	m.place("bob", 10)
	won := 0
	const rounds = 400
	for range rounds {
		a := order("ada", game.Order{Kind: game.Move, Cell: 9})
		b := order("bob", game.Order{Kind: game.Move, Cell: 9})
		first := m.play(a, b)
		require.ElementsMatch(t, []stream.Outcome{stream.Applied, stream.Fizzled}, first)
		if first[0] == stream.Applied {
			won++
		}
		m.place("ada", 8)
		m.place("bob", 10)
	}
	assert.InDelta(t, rounds/2, won, rounds/8, "neither number nor arrival decides")
}

func TestArrivalOrderDoesNotDecideBetweenShips(t *testing.T) {
	m := newMatch(t, 2)
	m.place("ada", 8)
	m.place("bob", 10)
	a := order("ada", game.Order{Kind: game.Move, Cell: 9})
	b := order("bob", game.Order{Kind: game.Move, Cell: 9})
	for tick := range fence.Tick(50) {
		_, ab := m.rules.Resolve(tick, []tile.Intent{a, b})
		_, ba := m.rules.Resolve(tick, []tile.Intent{b, a})
		assert.Equal(t, ab[0], ba[1])
		assert.Equal(t, ab[1], ba[0])
	}
}

func TestVolleyHurtsShieldThenHullThenDestroys(t *testing.T) {
	m := newMatch(t, 8)
	m.place("ada", 0)
	m.place("bob", 1)
	ada, bob := m.ship("ada").ID, m.ship("bob").ID
	fire := order("ada", game.Order{Kind: game.Volley, Target: bob})

	require.Equal(t, []stream.Outcome{stream.Applied, stream.Applied}, m.play(fire, order("bob",
		game.Order{Kind: game.Shield})))
	assert.Equal(t, uint8(game.ShieldCharge-game.VolleyDamage), m.ship("bob").Shield,
		"shields are up before volleys land")
	assert.Equal(t, uint8(game.MaxHull), m.ship("bob").Hull)
	require.Equal(t, stream.Applied, m.one(fire))
	assert.Equal(t, uint8(70), m.ship("bob").Hull, "5 points of shield, 30 of hull")
	require.Equal(t, []stream.Outcome{stream.Applied, stream.Applied, stream.Fizzled}, m.play(fire, fire, fire),
		"destroyed by the second")
	down := m.tick
	assert.False(t, func() bool { s := m.ship("bob"); return s.InPlay() }())
	assert.Equal(t, down+game.ReturnTicks, m.ship("bob").Back)
	assert.Equal(t, uint32(1), m.ship("ada").Score)
	assert.Equal(t, stream.Fizzled, m.one(fire), "destroyed")
	assert.Equal(t, stream.Fizzled, m.one(order("bob", game.Order{Kind: game.Shield})), "destroyed")
	assert.Equal(t, stream.Applied, m.one(order("ada", game.Order{Kind: game.Move, Cell: 1})), "its cell is free")

	for m.tick < down+game.ReturnTicks-1 {
		m.play()
		assert.Empty(t, m.events, "a quiet tick")
	}
	m.play()
	require.Len(t, m.events, 1)
	assert.Equal(t, game.Returned, m.events[0].Kind)
	assert.Equal(t, uint8(game.MaxHull), m.ship("bob").Hull)
	assert.Zero(t, m.ship("bob").Back)
	assert.Equal(t, stream.Rejected, m.one(order("ada", game.Order{Kind: game.Volley, Target: ada})), "at itself")
	assert.Equal(t, stream.Rejected, m.one(order("ada", game.Order{Kind: game.Volley, Target: 99})), "at nobody")
}

func TestVolleysOfATickAreSimultaneous(t *testing.T) {
	m := newMatch(t, 2)
	m.place("ada", 0)
	m.place("bob", 1)
	a := order("ada", game.Order{Kind: game.Volley, Target: m.ship("bob").ID})
	b := order("bob", game.Order{Kind: game.Volley, Target: m.ship("ada").ID})
	m.play(a, b)
	m.play(a, b)
	assert.Equal(t, []stream.Outcome{stream.Applied, stream.Applied, stream.Fizzled}, m.play(a, b, order("ada",
		game.Order{Kind: game.Move, Cell: 3})))
	for _, owner := range []string{"ada", "bob"} {
		s := m.ship(owner)
		assert.False(t, s.InPlay(), owner)
		assert.Equal(t, uint32(1), s.Score, owner)
	}
}

func TestVolleyRange(t *testing.T) {
	m := newMatch(t, 8)
	m.place("ada", 0)
	m.place("bob", 1)
	fire := order("ada", game.Order{Kind: game.Volley, Target: m.ship("bob").ID})
	for cell := uint16(1); int(cell) < m.ground.Len(); cell++ {
		m.place("bob", cell)
		_, got := m.rules.Resolve(m.tick+1, []tile.Intent{fire})
		want := stream.Applied
		if m.ground.distance(0, cell) > game.VolleyRange {
			want = stream.Fizzled
		}
		require.Equal(t, want, got[0], "%d steps", m.ground.distance(0, cell))
	}
}

func TestWarpIsTheMoveOfItsTick(t *testing.T) {
	m := newMatch(t, 3)
	m.place("ada", 0)
	m.place("bob", 20)
	warp := func(cell uint16) tile.Intent { return order("ada", game.Order{Kind: game.Warp, Cell: cell}) }
	assert.Equal(t, stream.Fizzled, m.one(warp(20)), "taken")
	near := uint16(m.ground.Adjacent(30)[0])
	assert.Equal(t, []stream.Outcome{stream.Fizzled, stream.Applied, stream.Fizzled},
		m.play(order("ada", game.Order{Kind: game.Move, Cell: near}), warp(30), warp(31)))
	assert.Equal(t, uint16(30), m.ship("ada").Cell)
	assert.Equal(t, stream.Rejected, m.one(warp(37)), "no such cell")
}

func TestShieldFillsUp(t *testing.T) {
	m := newMatch(t, 1)
	m.place("ada", 0)
	for _, want := range []stream.Outcome{stream.Applied, stream.Applied, stream.Fizzled} {
		assert.Equal(t, want, m.one(order("ada", game.Order{Kind: game.Shield})))
	}
	assert.Equal(t, uint8(game.MaxShield), m.ship("ada").Shield)
}

func TestReturnWaitsForRoom(t *testing.T) {
	m := newMatch(t, 1)
	for i := range 7 {
		m.play(order(fmt.Sprint("crew", i), game.Order{Kind: game.Spawn}))
	}
	victim := m.view.Ships()[0]
	fire := order("crew1", game.Order{Kind: game.Volley, Target: victim.ID})
	m.play(fire, fire, fire)
	m.play(order("eve", game.Order{Kind: game.Spawn}))
	assert.Len(t, m.view.Ships(), 7, "the seventh cell is kept for the ship that returns")
	eighth := game.Event{Kind: game.Spawned, Ship: 8, Cell: victim.Cell, Hull: 1, Owner: "eve"}
	assert.ErrorIs(t, m.rules.Apply(m.tick, [][]byte{eighth.Append(nil)}), game.ErrDisagree)
	for range game.ReturnTicks {
		m.play()
	}
	assert.Equal(t, uint8(game.MaxHull), m.ship("crew0").Hull)
	assert.Equal(t, victim.Cell, m.ship("crew0").Cell, "the only free cell")
}

func TestWhatHasNotPassedTheLedgerIsRejected(t *testing.T) {
	m := newMatch(t, 2)
	m.place("ada", 0)
	m.place("bob", 1)
	for _, o := range []game.Order{{Kind: game.Shield}, {Kind: game.Warp, Cell: 5}, {Kind: game.Volley,
		Target: m.ship("bob").ID}} {
		in := order("ada", o)
		require.Positive(t, o.Kind.Cost())
		in.ActionID = ""
		assert.Equal(t, stream.Rejected, m.one(in), "%s without an action ID", o.Kind)
	}
	for _, k := range []game.OrderKind{game.Spawn, game.Move} {
		assert.Zero(t, k.Cost(), "%s is free", k)
	}
}

func TestMalformedIntentsAreRejected(t *testing.T) {
	m := newMatch(t, 2)
	m.place("ada", 0)
	for _, body := range [][]byte{nil, {}, {1}, {0, 1}, {2, 1}, {1, 0}, {1, 6}, {1, 1, 0}, {1, 2, 0}, {1, 2, 0, 1, 0},
		{1, 3, 0, 0, 0}} {
		assert.Equal(t, stream.Rejected, m.one(tile.Intent{Actor: "ada", ActionID: "x", Body: body}), "% x", body)
	}
	spawn := game.Order{Kind: game.Spawn}.Encode()
	assert.Equal(t, stream.Rejected, m.one(tile.Intent{Body: spawn}), "no actor")
	assert.Equal(t, stream.Rejected, m.one(tile.Intent{Actor: string(make([]byte, 65)), Body: spawn}), "actor too long")
}

// field is a ground of one area whose cells touch no other.
type field int

func (f field) ID() fence.TileID                 { return 7 }
func (f field) Reaches(fence.TileID) bool        { return false }
func (f field) Len() int                         { return int(f) }
func (f field) Adjacent(int) []int32             { return nil }
func (f field) Area(int) fence.Area              { return 1 }
func (f field) Span(fence.Area) (first, end int) { return 0, int(f) }
func (f field) Around(fence.Area) []fence.Area   { return nil }
func (f field) Across(int) []region.Place        { return nil }

func TestGroundIsBounded(t *testing.T) {
	for _, cells := range []field{-1, 0, 65536} {
		_, err := game.NewView(cells)
		assert.ErrorIs(t, err, fence.ErrInvalidArgument)
		_, err = game.NewRules(cells)
		assert.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	_, err := game.NewView(field(65535))
	assert.NoError(t, err)
}
