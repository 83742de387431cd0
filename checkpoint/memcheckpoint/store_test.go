package memcheckpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/checkpointtest"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

// damaged is what tests alone do.
type damaged interface {
	Damage(tile fence.TileID) bool
	DamageEntry(tile fence.TileID, seq fence.Seq) bool
}

func TestConformance(t *testing.T) {
	checkpointtest.Run(t, func(*testing.T) checkpointtest.Harness {
		store := memcheckpoint.New()
		return checkpointtest.Harness{Store: store, Other: store,
			Damage: func(t *testing.T, tile fence.TileID) { require.True(t, store.(damaged).Damage(tile)) }}
	})
}

func TestJournalConformance(t *testing.T) {
	checkpointtest.RunJournal(t, func(*testing.T) checkpointtest.JournalHarness {
		store := memcheckpoint.New()
		return checkpointtest.JournalHarness{Journal: store,
			Damage: func(t *testing.T, tile fence.TileID, seq fence.Seq) {
				require.True(t,
					store.(damaged).DamageEntry(tile, seq))
			}}
	})
}

func TestWorld(t *testing.T) {
	t.Parallel()
	var store checkpoint.Backend
	fencetest.RunWorld(t, true, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		if store == nil || !w.ID.IsZero() { // a known ID begins a test
			store = memcheckpoint.New()
		}
		return store.(fence.WorldKeeper)
	})
}
