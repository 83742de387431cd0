package game_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// BenchmarkTick resolves and applies one tick in which a third of the ships tries to move and one in
// eight fires at a neighbour: with 100 ships, and with as many as the ground has cells, an eighth of
// them destroyed so that there is room to move.
func BenchmarkTick(b *testing.B) {
	ground := realGround(b)
	for _, ships := range []int{100, ground.Len()} {
		b.Run(fmt.Sprint("ships=", ships), func(b *testing.B) { benchmarkTick(b, ground, ships) })
	}
}

func benchmarkTick(b *testing.B, ground game.Ground, ships int) {
	rules, snapshot, intents := crowd(b, ground, ships)
	var batch stream.Batch
	b.ReportAllocs()
	for b.Loop() {
		batch.Events, _ = rules.Resolve(3, intents)
		batch.Divide(rules.Area)
		if err := rules.Apply(3, batch.Events); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		require.NoError(b, rules.Restore(snapshot))
		b.StartTimer()
	}
	payload, _, err := batch.Encode()
	require.NoError(b, err)
	b.ReportMetric(float64(len(batch.Events)), "events")
	b.ReportMetric(float64(len(payload)), "bytes")
}

// crowd spawns the ships, destroys one in eight, and returns the snapshot and what the others want next.
func crowd(b *testing.B, ground game.Ground, ships int) (*game.Rules, []byte, []tile.Intent) {
	rules, err := game.NewRules(ground)
	require.NoError(b, err)
	view, err := game.NewView(ground)
	require.NoError(b, err)
	tick := func(n int, intents []tile.Intent) []byte {
		events, outcomes := rules.Resolve(1, intents)
		require.Len(b, outcomes, n)
		require.NotContains(b, outcomes, stream.Rejected)
		require.NotContains(b, outcomes, stream.Fizzled)
		require.NoError(b, rules.Apply(1, events))
		snapshot, err := rules.Snapshot()
		require.NoError(b, err)
		require.NoError(b, view.Restore(snapshot, fence.AreaSet{}))
		return snapshot
	}
	var intents []tile.Intent
	for i := range ships {
		spawn := game.Order{Kind: game.Spawn, Cell: uint16(i * ground.Len() / ships)}
		intents = append(intents, order(fmt.Sprintf("bot-%04d", i), spawn))
	}
	tick(ships, intents)
	intents = nil
	at, fleet := map[int32]game.Ship{}, view.Ships()
	for _, s := range fleet {
		at[int32(s.Cell)] = s
	}
	doomed := map[uint32]bool{}
	for _, s := range fleet {
		target, ok := at[ground.Adjacent(int(s.Cell))[0]]
		if ok && len(doomed) < ships/8 && !doomed[target.ID] {
			doomed[target.ID] = true
			fire := order(s.Owner, game.Order{Kind: game.Volley, Target: target.ID})
			intents = append(intents, fire, fire, fire)
		}
	}
	snapshot := tick(len(intents), intents)
	intents = nil
	for i, s := range view.Ships() {
		near := ground.Adjacent(int(s.Cell))
		if i%3 == 0 {
			intents = append(intents, order(s.Owner, game.Order{Kind: game.Move, Cell: uint16(near[i%len(near)])}))
		}
		if target, ok := at[near[0]]; i%8 == 0 && ok {
			intents = append(intents, order(s.Owner, game.Order{Kind: game.Volley, Target: target.ID}))
		}
	}
	return rules, snapshot, intents
}
