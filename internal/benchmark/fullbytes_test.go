//go:build linux

package benchmark

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// BenchmarkFullTileBytes measures no time: it is how many bytes the snapshot of a full tile takes, and a tick in which
// fifty of its ships do something, or all of them, as the stream holds it. They charge their shields: in a full tile
// most moves are blocked.
func BenchmarkFullTileBytes(b *testing.B) {
	for name, ship := range map[string]func(int) string{"short-names": shipName, "long-names": longName} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				full := newFullGame(b, ship)
				b.ReportMetric(float64(full.snapshotBytes(b))/1024, "snapshot-KiB")
				b.ReportMetric(float64(full.tickBytes(b, full.ships))/1024, "tick-all-KiB")
				b.ReportMetric(float64(newFullGame(b, ship).tickBytes(b, busyShips)), "tick-50-bytes")
			}
			b.ReportMetric(0, "ns/op") // of this program, and of no interest
		})
	}
}

// fullGame is a tile full of ships.
type fullGame struct {
	rules *game.Rules
	name  func(int) string
	ships int
	cells int
	tick  fence.Tick
}

func newFullGame(b *testing.B, name func(int) string) *fullGame {
	ground, err := game.GroundOf(0x85283083fffffff, nil)
	require.NoError(b, err)
	rules, err := game.NewRules(ground)
	require.NoError(b, err)
	f := &fullGame{rules: rules, name: name, ships: shipsOn(ground.Len()), cells: ground.Len()}
	f.play(b, f.ships, game.Spawn)
	return f
}

// play resolves and applies a tick in which so many ships give an order.
func (f *fullGame) play(b *testing.B, ships int, order game.OrderKind) [][]byte {
	f.tick++
	var intents []tile.Intent
	for _, i := range rand.Perm(f.ships)[:ships] {
		intents = append(intents, tile.Intent{Actor: f.name(i), ActionID: fmt.Sprint(f.tick, "/", i),
			Body: game.Order{Kind: order, Cell: uint16(i * f.cells / f.ships)}.Encode()})
	}
	events, _ := f.rules.Resolve(f.tick, intents)
	require.Len(b, events, ships)
	require.NoError(b, f.rules.Apply(f.tick, events))
	return events
}

func (f *fullGame) snapshotBytes(b *testing.B) int {
	state, err := f.rules.Snapshot()
	require.NoError(b, err)
	return len(stream.AppendDivided(nil, state, nil))
}

// tickBytes is the length of the frame of a tick.
func (f *fullGame) tickBytes(b *testing.B, ships int) int {
	events := f.play(b, ships, game.Shield)
	batch := stream.Batch{Events: events}
	batch.Divide(f.rules.Area)
	payload, private, err := batch.Encode()
	require.NoError(b, err)
	return len(fence.NewEntry(fence.Entry{Tile: 1, Kind: fence.KindBatch, Position: fence.Position{Epoch: 1, Seq: 2},
		Payload: payload, Private: private}).Frame)
}
