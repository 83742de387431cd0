package game

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func TestTheRegisterDependsOnItsPast(t *testing.T) {
	intents := []tile.Intent{{ActionID: "a"}, {ActionID: "b"}, {ActionID: "c"}, {ActionID: "d"}, {ActionID: "e"},
		{ActionID: "f"}}
	var r Register
	events, outcomes := r.Resolve(1, intents)
	require.Len(t, outcomes, len(intents))
	applied := 0
	for _, o := range outcomes {
		if o == stream.Applied {
			applied++
		}
	}
	require.Len(t, events, applied)
	require.Empty(t, r.Applied, "deciding changes nothing")
	require.NoError(t, r.Apply(1, events))
	before := r.Digest()
	snapshot, err := r.Snapshot()
	require.NoError(t, err)
	var restored Register
	require.NoError(t, restored.Restore(snapshot))
	require.Equal(t, before, restored.Digest())
	require.NoError(t, restored.Apply(2, events), "an action that takes effect twice is kept, to be found")
	require.NotEqual(t, before, restored.Digest())

	differs := false
	for n := range 5 {
		differs = differs || fizzles(n, "a") != fizzles(0, "a")
	}
	require.True(t, differs)
	require.Error(t, r.Apply(3, [][]byte{nil}))
}
