package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestATileAt2HzTurnsWithEachTick, also where a tick comes a little early.
func TestATileAt2HzTurnsWithEachTick(t *testing.T) {
	tile := newDeskTile(0x8428309ffffffff, 1)
	tile.list = false
	tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}, &DeskStats{})
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
	tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}, &DeskStats{})
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
	require.True(t, tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}, &DeskStats{}))
	require.False(t, play(1))
	now = now.Add(listAfter - time.Second)
	require.False(t, play(1))
	require.False(t, tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}, &DeskStats{}))
	now = now.Add(time.Second)
	require.True(t, play(0))
	require.EqualValues(t, 1, stats.Missing)
	require.True(t, tile.ask(Request{Tile: tile.id, Entity: "kestrel", Tier: Background}, &DeskStats{}))
}

// TestOneRequesterHasAShare of what a tile may have outstanding, and the tile a bound of its own, before anything is
// sent; what comes back by promotion counts.
func TestOneRequesterHasAShare(t *testing.T) {
	tile, stats := newDeskTile(1, 1), &DeskStats{}
	ask := func(requester string, n int) bool {
		return tile.ask(Request{Tile: 1, Entity: fmt.Sprint(requester, n), Requester: requester, Tier: Player}, stats)
	}
	for i := range MaxOfRequester {
		require.True(t, ask("ann", i))
	}
	require.False(t, ask("ann", MaxOfRequester))
	require.True(t, ask("ann", 0), "again, of an entity that she has")
	require.True(t, ask("bob", 0))
	tile.free("ann0", stats) // and what she has asked for meanwhile takes its place
	require.Contains(t, tile.entities, "ann0")
	require.False(t, ask("ann", MaxOfRequester))
	tile.free("ann0", stats)
	require.NotContains(t, tile.entities, "ann0")
	require.True(t, ask("ann", MaxOfRequester))
	for i := len(tile.entities); i < MaxOutstanding; i++ {
		require.True(t, ask(fmt.Sprint("many", i/8), i))
	}
	require.False(t, ask("new", 0))
	require.EqualValues(t, 3, stats.Full)
	for name := range tile.entities {
		tile.free(name, stats)
	}
	require.Len(t, tile.shares, 0, "%v", tile.shares)
}

// TestPausesDouble: a pause is drawn from the whole of a range that doubles with each failure, up to 30 times the
// first.
func TestPausesDouble(t *testing.T) {
	w := &Worker{}
	for attempt, times := range map[int]int{1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 30, 7: 30, 90: 30} {
		most := time.Duration(times) * time.Second
		least, longest := most, time.Duration(0)
		for range 1000 {
			p := w.pauseAfter(attempt)
			require.Positive(t, p)
			least, longest = min(least, p), max(longest, p)
		}
		require.LessOrEqual(t, longest, most)
		require.Greater(t, longest, most*9/10, "attempt %d", attempt)
		require.Less(t, least, most/10, "attempt %d", attempt)
	}
}
