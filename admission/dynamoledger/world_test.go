package dynamoledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
)

// TestWorldOfATable: a table is of one world, and its record is none of the ledger's.
func TestWorldOfATable(t *testing.T) {
	client := connect(t, nil)
	var table string
	open := func(t *testing.T, w fence.World) fence.WorldKeeper {
		if !w.ID.IsZero() { // a known ID begins a test
			table = newTable(t)
		}
		store, err := dynamoledger.New(client, table, nil)
		require.NoError(t, err)
		return store
	}
	fencetest.RunWorld(t, true, open)
	store := open(t, fence.World{ID: fence.NewWorldID()}).(*dynamoledger.Store)
	_, err := store.EnterWorld(t.Context(), fence.World{Name: "one", ID: fence.NewWorldID()})
	require.NoError(t, err)
	require.NoError(t, store.Scan(t.Context(), func(r admission.Record) error {
		require.Fail(t, "the record is none of the ledger's", "%v", r)
		return nil
	}))
}
