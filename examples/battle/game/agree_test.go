package game_test

import (
	"fmt"
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
// snapshot decides like its predecessor. A failure prints the command that replays it.
func TestOwnersAndWatchersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ground := newDisk(rapid.IntRange(0, 3).Draw(t, "radius"))
		owner, err := game.NewRules(ground)
		require.NoError(t, err)
		view, err := game.NewView(ground.Len())
		require.NoError(t, err)
		tick := fence.Tick(rapid.Uint64Range(0, fence.MaxNumber-200).Draw(t, "first tick"))
		for range rapid.IntRange(1, 40).Draw(t, "ticks") {
			tick += fence.Tick(rapid.IntRange(1, 3).Draw(t, "pause"))
			intents := rapid.SliceOfN(intent(ground), 0, 24).Draw(t, "intents")
			events := oneTick(t, ground, owner, view, tick, intents)
			if rapid.IntRange(0, 9).Draw(t, "takeover") == 0 {
				owner = successor(t, ground, owner)
			}
			if len(events) > 0 && rapid.IntRange(0, 9).Draw(t, "resync") == 0 {
				snapshot, err := owner.Snapshot()
				require.NoError(t, err)
				require.NoError(t, view.Restore(snapshot))
			}
		}
	})
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

func oneTick(t *rapid.T, ground *disk, owner *game.Rules, view *game.View, tick fence.Tick,
	intents []tile.Intent) [][]byte {
	before, ships := owner.Digest(), view.Ships()
	events, outcomes := owner.Resolve(tick, intents)
	require.Equal(t, before, owner.Digest(), "deciding changes nothing")
	again, same := successor(t, ground, owner).Resolve(tick, intents)
	require.Equal(t, events, again, "a successor decides the same")
	require.Equal(t, outcomes, same)
	checkTick(t, ground, tick, ships, events, intents, outcomes)

	payload, _, err := (&stream.Batch{Events: events}).Encode()
	require.NoError(t, err)
	require.NoError(t, owner.Apply(tick, events))
	require.NoError(t, view.Apply(&fence.Entry{Tick: tick, Payload: payload}))
	require.Equal(t, owner.Digest(), view.Digest(), "a watcher sees what the owner has")
	checkGround(t, ground, view.Ships())
	return events
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
// intent, as many events as applied intents and returns, steps of one cell, shots within range.
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
	moved := map[uint32]bool{}
	for _, p := range events {
		e, err := game.DecodeEvent(p)
		require.NoError(t, err)
		switch e.Kind {
		case game.Returned:
			applied++
			require.LessOrEqual(t, ships[e.Ship-1].Back, tick)
		case game.Moved, game.Warped:
			require.False(t, moved[e.Ship], "one change of place a tick")
			moved[e.Ship] = true
			if e.Kind == game.Moved {
				require.Equal(t, 1, ground.distance(ships[e.Ship-1].Cell, e.Cell))
			}
		case game.Fired:
			// A target that spawned or returned in this very tick was elsewhere before; the others have
			// not moved yet.
			if i := int(e.Target - 1); i < len(ships) && ships[i].InPlay() {
				require.LessOrEqual(t, ground.distance(ships[e.Ship-1].Cell, ships[i].Cell), game.VolleyRange)
			}
		}
	}
	require.Equal(t, applied, len(events))
}

func checkGround(t *rapid.T, ground *disk, ships []game.Ship) {
	taken, owners := map[uint16]bool{}, map[string]bool{}
	for i, s := range ships {
		require.Equal(t, uint32(i+1), s.ID)
		require.Less(t, int(s.Cell), ground.Len())
		require.LessOrEqual(t, s.Shield, uint8(game.MaxShield))
		require.False(t, owners[s.Owner])
		owners[s.Owner] = true
		if s.InPlay() {
			require.False(t, taken[s.Cell], "two ships on cell %d", s.Cell)
			taken[s.Cell] = true
		}
	}
}
