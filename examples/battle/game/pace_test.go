package game_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// TestWatchersAreToldOfThePace: whatever areas they watch, until another one comes; the state is the same.
func TestWatchersAreToldOfThePace(t *testing.T) {
	ground := newDisk(3)
	rules, err := game.NewRules(ground)
	require.NoError(t, err)
	view, err := game.NewView(ground)
	require.NoError(t, err)
	assert.InDelta(t, 1, view.Pace(), 0)
	snapshot, err := rules.Snapshot()
	require.NoError(t, err)
	require.NoError(t, view.Restore(snapshot, fence.Areas(1)))

	paced := func(tick fence.Tick, pace float64) {
		b := stream.Batch{Events: [][]byte{rules.Dilated(pace)}}
		b.Divide(rules.Area)
		payload, _, err := b.Encode()
		require.NoError(t, err)
		before := rules.Digest()
		require.NoError(t, rules.Apply(tick, b.Events))
		assert.Equal(t, before, rules.Digest())
		require.NoError(t, view.Apply(&fence.Entry{Tick: tick, Payload: payload}))
	}
	paced(1, 1.25)
	assert.InDelta(t, 1.25, view.Pace(), 0)
	require.NoError(t, view.Open(snapshot, fence.Areas(2)))
	require.NoError(t, view.Restore(snapshot, fence.Areas(1)))
	view.Keep(fence.Areas(1))
	assert.InDelta(t, 1.25, view.Pace(), 0, "a snapshot does not say")
	paced(2, 1000)
	assert.InDelta(t, 63.75, view.Pace(), 0, "as much as the event can say")
	paced(3, 1)
	assert.InDelta(t, 1, view.Pace(), 0)

	for _, wrong := range [][]byte{{10, 0, 3}, {10, 1, 4}, {10, 0}} {
		_, err := game.DecodeEvent(wrong)
		assert.ErrorContains(t, err, "event")
	}
}
