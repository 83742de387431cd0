package game_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestOwnersAndWatchersAgree plays random games and holds them to what every game under Tilefence has to
// promise: deciding changes nothing, the events alone give the state, a successor that starts from a
// snapshot decides like its predecessor, and a watcher of some areas sees of them what the owner has. A failure
// prints the command that replays it.
func TestOwnersAndWatchersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ground := newDisk(rapid.IntRange(0, 3).Draw(t, "radius"))
		owner, err := game.NewRules(ground)
		require.NoError(t, err)
		view, err := game.NewView(ground)
		require.NoError(t, err)
		some := newWatcher(t, ground)
		tick := fence.Tick(rapid.Uint64Range(0, fence.MaxNumber-200).Draw(t, "first tick"))
		for range rapid.IntRange(1, 40).Draw(t, "ticks") {
			tick += fence.Tick(rapid.IntRange(1, 3).Draw(t, "pause"))
			intents := rapid.SliceOfN(intent(ground), 0, 24).Draw(t, "intents")
			before, err := owner.Snapshot()
			require.NoError(t, err)
			payload := oneTick(t, ground, owner, view, tick, intents)
			some.follow(t, owner, before, &fence.Entry{Tick: tick, Payload: payload})
			if rapid.IntRange(0, 9).Draw(t, "takeover") == 0 {
				owner = successor(t, ground, owner)
			}
			if len(payload) > 0 && rapid.IntRange(0, 9).Draw(t, "resync") == 0 {
				snapshot, err := owner.Snapshot()
				require.NoError(t, err)
				require.NoError(t, view.Restore(snapshot, fence.AreaSet{}))
			}
		}
	})
}

// watcher sees some areas of a tile, now these and then those.
type watcher struct {
	ground  *disk
	view    *game.View
	areas   []fence.Area
	states  [][]byte      // snapshots before each entry
	entries []fence.Entry // all so far
}

func newWatcher(t *rapid.T, ground *disk) *watcher {
	w := &watcher{ground: ground}
	var err error
	w.view, err = game.NewView(ground)
	require.NoError(t, err)
	w.areas = w.choose(t)
	require.NoError(t, w.view.Restore(nil, fence.Areas(w.areas...)))
	return w
}

// choose draws areas; one at least.
func (w *watcher) choose(t *rapid.T) []fence.Area {
	last := int(w.ground.Area(w.ground.Len() - 1))
	areas := rapid.SliceOfNDistinct(rapid.IntRange(1, last), 1, last, rapid.ID).Draw(t, "areas")
	chosen := make([]fence.Area, len(areas))
	for i, a := range areas {
		chosen[i] = fence.Area(a)
	}
	return chosen
}

// follow folds an entry as a watcher is sent it, sometimes looks elsewhere, and compares what it sees then. Areas that
// it opens come from an older snapshot, and catch up alone.
func (w *watcher) follow(t *rapid.T, owner *game.Rules, before []byte, e *fence.Entry) {
	w.states, w.entries = append(w.states, before), append(w.entries, *e)
	w.apply(t, e, fence.Areas(w.areas...))
	if rapid.IntRange(0, 3).Draw(t, "look elsewhere") == 0 {
		held := fence.Areas(w.areas...)
		w.areas = w.choose(t)
		w.view.Keep(fence.Areas(w.areas...))
		if fresh, some := fence.Areas(w.areas...).Without(held); some {
			from := rapid.IntRange(0, len(w.entries)-1).Draw(t, "snapshot")
			parts, _ := fence.SelectParts(w.states[from], fresh)
			require.NoError(t, w.view.Open(parts, fresh))
			for i := range w.entries[from:] {
				w.apply(t, &w.entries[from+i], fresh)
			}
		}
	}
	all, seen := owner.Digests(), w.view.Digests()
	require.Len(t, seen, len(w.areas))
	for _, a := range w.areas {
		require.Equal(t, all[a], seen[a], "area %d", a)
	}
	for _, s := range w.view.Ships() {
		mine, ok := w.view.ShipOf(s.Owner)
		require.True(t, ok)
		require.Equal(t, s, mine, "each ship is in one area")
	}
}

func (w *watcher) apply(t *rapid.T, e *fence.Entry, areas fence.AreaSet) {
	sent, _ := fence.SelectParts(e.Payload, areas)
	require.NoError(t, w.view.Apply(&fence.Entry{Tick: e.Tick, Payload: sent}))
}

// intent draws anything an actor may send: mostly sense, some nonsense.
func intent(ground *disk) *rapid.Generator[tile.Intent] {
	return rapid.Custom(func(t *rapid.T) tile.Intent {
		in := tile.Intent{Tile: 1, Actor: fmt.Sprint("actor", rapid.IntRange(0, 11).Draw(t, "actor"))}
		if rapid.IntRange(0, 19).Draw(t, "garbage") == 0 {
			in.Body = rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "body")
			return in
		}
		o := game.Order{
			Kind:   game.OrderKind(rapid.IntRange(1, 5).Draw(t, "kind")),
			Cell:   uint16(rapid.IntRange(0, ground.Len()).Draw(t, "cell")),
			Target: uint32(rapid.IntRange(0, 13).Draw(t, "target")),
		}
		if o.Kind.Card() && rapid.IntRange(0, 9).Draw(t, "unpaid") > 0 {
			in.ActionID = rapid.StringN(1, 8, 64).Draw(t, "action ID")
		}
		in.Body = o.Encode()
		return in
	})
}

// oneTick plays a tick and returns what a commit of it carries.
func oneTick(t *rapid.T, ground *disk, owner *game.Rules, view *game.View, tick fence.Tick,
	intents []tile.Intent) (payload []byte) {
	before, ships := owner.Digest(), byNumber(view.Ships())
	events, outcomes := owner.Resolve(tick, intents)
	require.Equal(t, before, owner.Digest(), "deciding changes nothing")
	again, same := successor(t, ground, owner).Resolve(tick, intents)
	require.Equal(t, events, again, "a successor decides the same")
	require.Equal(t, outcomes, same)
	checkTick(t, ground, tick, ships, events, intents, outcomes)

	batch := stream.Batch{Events: events}
	batch.Divide(owner.Area)
	payload, _, err := batch.Encode()
	require.NoError(t, err)
	require.NoError(t, owner.Apply(tick, batch.Events))
	require.NoError(t, view.Apply(&fence.Entry{Tick: tick, Payload: payload}))
	require.Equal(t, owner.Digest(), view.Digest(), "a watcher sees what the owner has")
	require.Equal(t, owner.Digests(), view.Digests())
	checkGround(t, ground, view.Ships())
	return payload
}

// byNumber lists ships without gaps: the first is number 1.
func byNumber(ships []game.Ship) []game.Ship {
	slices.SortFunc(ships, func(a, b game.Ship) int { return cmp.Compare(a.ID, b.ID) })
	return ships
}

func successor(t *rapid.T, ground *disk, owner *game.Rules) *game.Rules {
	snapshot, err := owner.Snapshot()
	require.NoError(t, err)
	next, err := game.NewRules(ground)
	require.NoError(t, err)
	require.NoError(t, next.Restore(snapshot))
	require.Equal(t, owner.Digest(), next.Digest())
	return next
}

// checkTick holds a tick's decisions to the rules, from the ships as they were: one terminal outcome an
// intent, as many events as applied intents, returns and scores, with two for a ship that changes its area, steps of
// one cell, shots within range.
func checkTick(t *rapid.T, ground *disk, tick fence.Tick, ships []game.Ship, events [][]byte, intents []tile.Intent,
	outcomes []stream.Outcome) {
	require.Len(t, outcomes, len(intents))
	applied := 0
	for _, o := range outcomes {
		require.True(t, o.Valid() && o != stream.Redirected)
		if o == stream.Applied {
			applied++
		}
	}
	moved, left, destroyed, scored := map[uint32]bool{}, map[uint32]fence.Area{}, 0, 0
	for _, p := range events {
		e, err := game.DecodeEvent(p)
		require.NoError(t, err)
		switch e.Kind {
		case game.Returned:
			applied++
			require.LessOrEqual(t, ships[e.Ship-1].Back, tick)
		case game.Moved, game.Warped, game.Entered:
			require.False(t, moved[e.Ship], "one change of place a tick")
			moved[e.Ship] = true
			from := ships[e.Ship-1].Cell
			if e.Kind == game.Moved {
				require.Equal(t, 1, ground.distance(from, e.Cell))
			}
			require.Equal(t, e.Kind == game.Entered, ground.Area(int(from)) != ground.Area(int(e.Cell)))
		case game.Left:
			applied++
			left[e.Ship] = e.Area
		case game.Scored:
			applied++
			scored++
		case game.Fired:
			if e.Hull == 0 {
				destroyed++
			}
			// A target that spawned or returned in this very tick was elsewhere before; the others have
			// not moved yet.
			if i := int(e.Target - 1); i < len(ships) && ships[i].InPlay() {
				require.LessOrEqual(t, ground.distance(ships[e.Ship-1].Cell, ships[i].Cell), game.VolleyRange)
			}
		}
	}
	require.Equal(t, applied, len(events))
	require.Equal(t, destroyed, scored)
	for ship, area := range left {
		require.True(t, moved[ship])
		require.Equal(t, ground.Area(int(ships[ship-1].Cell)), area)
	}
}

func checkGround(t *rapid.T, ground *disk, ships []game.Ship) {
	taken, owners, inArea := map[uint16]bool{}, map[string]bool{}, map[fence.Area]int{}
	for i, s := range byNumber(ships) {
		require.Equal(t, uint32(i+1), s.ID)
		require.Less(t, int(s.Cell), ground.Len())
		require.LessOrEqual(t, s.Shield, uint8(game.MaxShield))
		require.False(t, owners[s.Owner])
		owners[s.Owner] = true
		inArea[ground.Area(int(s.Cell))]++
		if s.InPlay() {
			require.False(t, taken[s.Cell], "two ships on cell %d", s.Cell)
			taken[s.Cell] = true
		}
	}
	for a, n := range inArea {
		first, end := ground.Span(a)
		require.LessOrEqual(t, n, end-first, "area %d", a)
	}
}
