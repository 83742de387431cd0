package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/statuspoller"
)

// injectOnce injects one kind of fault into a deployment, and returns what the report says of it.
func injectOnce(t *testing.T, d *deployment, k faultinject.Kind) chaos.KindReport {
	r, err := d.chaos.Once(t.Context(), k.Title)
	require.NoError(t, err)
	require.Zero(t, d.chaos.Report().Unrecovered)
	return r
}

// TestOwnerCutOff: an owner that lives but reaches no other process loses its tiles, commits nothing to them when it is
// back, and is a member again, which hears of the others.
func TestOwnerCutOff(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "4", "-hosts", "3", "-tick", "100ms")
	for range 2 { // it is a host like the others afterwards
		k := injectOnce(t, d, faultinject.OwnerCutOff)
		assert.Positive(t, k.Detection, "another has taken the tiles")
	}
	stood := 0
	for _, e := range d.meters.Log.After(0) {
		if e.Kind == statuspoller.KindRefused || e.Kind == statuspoller.KindStoodDown {
			stood++
		}
	}
	assert.Positive(t, stood, "what was cut off has met its successors")
	for _, h := range d.hosts.all() {
		assert.Len(t, h.Members(), 4, "three hosts and the gateway see each other")
	}
}

// TestStormOfViewers: hundreds come at once, see their tiles, and leave.
func TestStormOfViewers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "2", "-tick", "100ms")
	assert.Positive(t, injectOnce(t, d, faultinject.ViewerStorm).Count)
	assert.GreaterOrEqual(t, d.poller.Relay.Stats().Connected, uint64(chaos.Viewers))
}

// TestDynamoDBThrottled: while DynamoDB refuses everything the tiles go on, and the ledger and the checkpointer do
// afterwards.
func TestDynamoDBThrottled(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Parallel()
	d := deploy(t, "-stack", "local", "-chaos", "-tiles", "2", "-tick", "100ms")
	k := injectOnce(t, d, faultinject.DurableThrottled)
	assert.Positive(t, k.Recovery)
	assert.Positive(t, d.backends.throttle.Refused.Load(), "something was refused")
}
