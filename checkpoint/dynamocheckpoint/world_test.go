package dynamocheckpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

// TestWorldOfATable: a table is of one world, also one that has checkpoints from before there were worlds.
func TestWorldOfATable(t *testing.T) {
	var table string
	fencetest.RunWorld(t, true, func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			table = newTable(t)
			require.NoError(t, newStore(t, table, nil).Put(t.Context(), tile, snapshot(1, 1, 10)))
		}
		return newStore(t, table, nil)
	})
	table = newTable(t)
	own := fence.World{Name: "one", ID: fence.NewWorldID()}
	reader := newStore(t, table, readPolicy(t, "viewer").fault)
	_, err := reader.EnterWorld(t.Context(), own)
	require.NoError(t, err, "it leaves the record to a writer")
	for _, actor := range []string{"checkpointer", "tile", "viewer"} {
		found, err := newStore(t, table, readPolicy(t, actor).fault).EnterWorld(t.Context(), own)
		require.NoError(t, err, actor)
		if actor != "viewer" {
			require.Equal(t, own, found)
		}
	}
	for head, err := range reader.List(t.Context()) {
		require.NoError(t, err)
		require.Fail(t, "the record is no checkpoint", "%v", head)
	}
}
