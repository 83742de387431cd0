package memcheckpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/checkpointtest"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

func TestConformance(t *testing.T) {
	checkpointtest.Run(t, func(*testing.T) checkpointtest.Harness {
		store := memcheckpoint.New()
		return checkpointtest.Harness{Store: store, Other: store,
			Damage: func(t *testing.T, tile fence.TileID) { require.True(t, store.Damage(tile)) }}
	})
}

func TestJournalConformance(t *testing.T) {
	checkpointtest.RunJournal(t, func(*testing.T) checkpointtest.JournalHarness {
		store := memcheckpoint.New()
		return checkpointtest.JournalHarness{Journal: store,
			Damage: func(t *testing.T, tile fence.TileID, seq fence.Seq) {
				require.True(t,
					store.DamageEntry(tile, seq))
			}}
	})
}

func TestWorld(t *testing.T) {
	t.Parallel()
	var store *memcheckpoint.Store
	fencetest.RunWorld(t, true, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		if store == nil || !w.ID.IsZero() { // a known ID begins a test
			store = memcheckpoint.New()
		}
		return store
	})
}
