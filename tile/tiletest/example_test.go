package tiletest_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tiletest"
)

// doorbell is the game of the README.
type doorbell struct{ rings int }

func newDoorbell(fence.TileID) (tile.Rules, error) { return &doorbell{}, nil }

func (d *doorbell) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range intents {
		events, outcomes = append(events, []byte("ring")), append(outcomes, stream.Applied)
	}
	return events, outcomes
}
func (d *doorbell) Apply(_ fence.Tick, events [][]byte) error { d.rings += len(events); return nil }
func (d *doorbell) Snapshot() ([]byte, error)                 { return make([]byte, d.rings), nil }
func (d *doorbell) Restore(snapshot []byte) error             { d.rings = len(snapshot); return nil }

// TestDoorbell is all that a game needs to be held to what it promises.
func TestDoorbell(t *testing.T) {
	tiletest.Run(t, newDoorbell, func(*rand.Rand) tile.Intent { return tile.Intent{Actor: "ann"} }, nil)
}

// TestRingsOutliveTheOwner is a scenario: an owner is killed, and its successor answers a retry as it did.
func TestRingsOutliveTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tiletest.NewCluster(t, 0, newDoorbell, nil)
		first, second := c.Start("first:1"), c.Start("second:1")
		press := tile.Intent{Actor: "ann", ActionID: "press-1"}
		assert.Equal(t, stream.Applied, c.Submit(press))

		c.Kill(first)
		assert.Equal(t, stream.Applied, c.Submit(press), "the outcome that it had")
		assert.Same(t, second, c.Owner())
		assert.Equal(t, stream.Applied, c.Submit(tile.Intent{Actor: "ann"}))
		assert.Len(t, c.State(), 2)
	})
}
