package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestATileAt2HzTurnsWithEachTick, also where a tick comes a little early.
func TestATileAt2HzTurnsWithEachTick(t *testing.T) {
	tile := newDeskTile(0x8428309ffffffff, 1)
	tile.list = false
	tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background})
	now := time.Now()
	for range 10 {
		require.True(t, tile.due(now))
		tile.turn(now)
		now = now.Add(490 * time.Millisecond)
	}
}

// TestAPlanMayComeATenthLate, within bounds: what is known of the calls is how long they took before.
func TestAPlanMayComeATenthLate(t *testing.T) {
	tile := newDeskTile(1, 1)
	tile.list = false
	tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background})
	now := time.Now()
	tile.turn(now)
	for took, want := range map[time.Duration]time.Duration{0: turnSoonest, time.Second: turnSoonest,
		3 * time.Second: 300 * time.Millisecond, 30 * time.Second: turnLatest, tile.took: turnLatest} {
		tile.took = took
		require.False(t, tile.due(now.Add(want-time.Millisecond)), took)
		require.True(t, tile.due(now.Add(want)), took)
	}
	tile.took = turnLatest * turnPart
	id := tile.entities["kestrel"].request.ID
	tile.settle(&Turn{Ask: []Request{tile.entities["kestrel"].request}}, &TurnReply{Asked: []AskReply{{ID: id}},
		Answers: []Answer{{Entity: "kestrel", ID: id, Kind: Planned}}}, &DeskStats{})
	require.InDelta(t, (turnLatest * turnPart * 7 / 8).Seconds(), tile.took.Seconds(), 0.1, "this one took no time")
}

// TestATileLooksWhatTheStoreHas, at times: a request of which only the record is gone counts as in flight there.
func TestATileLooksWhatTheStoreHas(t *testing.T) {
	tile, stats, now := newDeskTile(1, 1), &DeskStats{}, time.Now()
	play := func(inStore int) (list bool) {
		n := tile.turn(now)
		r := &TurnReply{InStore: inStore}
		for _, ask := range n.Ask {
			r.Asked = append(r.Asked, AskReply{Taken: true, ID: ask.ID})
		}
		tile.settle(&n, r, stats)
		return n.List
	}
	require.True(t, play(0), "the first turn")
	require.True(t, tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}))
	require.False(t, play(1))
	now = now.Add(listAfter - time.Second)
	require.False(t, play(1))
	require.False(t, tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}))
	now = now.Add(time.Second)
	require.True(t, play(0))
	require.EqualValues(t, 1, stats.Missing)
	require.True(t, tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}))
}
