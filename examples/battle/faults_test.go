package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/tile"
)

// strikeOnce breaks one kind of thing in a deployment, and returns what the report says of it.
func strikeOnce(t *testing.T, d *deployment, kind string) *chaosKind {
	d.chaos.deck = nil
	for _, f := range d.chaos.all {
		if f.kind == kind {
			d.chaos.deck = []fault{f}
		}
	}
	require.Len(t, d.chaos.deck, 1, "there is no such fault")
	require.NoError(t, d.chaos.one(t.Context()))
	require.Zero(t, d.chaos.sums.Unrecovered)
	return d.chaos.sums.Kinds[kind]
}

// TestOwnerCutOff: an owner that lives but reaches no other process loses its tiles, commits nothing to them when it is
// back, and is a member again, which hears of the others.
func TestOwnerCutOff(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "4", "-hosts", "3", "-tick", "100ms")
	for range 2 { // it is a host like the others afterwards
		k := strikeOnce(t, d, "owner cut off")
		assert.Positive(t, k.Detection, "another has taken the tiles")
	}
	stood := 0
	for _, e := range d.meters.log.after(0) {
		if e.Kind == spectator.KindRefused || e.Kind == spectator.KindStoodDown {
			stood++
		}
	}
	assert.Positive(t, stood, "what was cut off has met its successors")
	for _, h := range d.hosts.all() {
		assert.Len(t, h.Members().Members(), 4, "three hosts and the gateway see each other")
	}
}

// TestLateCommits: what a host that was cut off commits to a tile counts against it once another has taken the tile,
// until it owns the tile again.
func TestLateCommits(t *testing.T) {
	const id, other fence.TileID = 1, 2
	v, tr := newVitals(), &trial{began: time.Now(), victim: "ann:1", fenced: true}
	v.begin(tr, []fence.TileID{id, other})
	v.committed(id, "ann:1", 4)
	v.moved("bob:1", tile.TransitionInfo{Tile: id, From: tile.Installing, To: tile.Serving, Epoch: 5})
	v.committed(id, "bob:1", 5)
	v.committed(other, "ann:1", 4)
	assert.Zero(t, v.late(tr))
	v.committed(id, "ann:1", 4)
	assert.Equal(t, 1, v.late(tr))
	v.committed(id, "ann:1", 6)
	assert.Equal(t, 1, v.late(tr))
}

// TestStormOfViewers: hundreds come at once, see their tiles, and leave.
func TestStormOfViewers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "2", "-tick", "100ms")
	assert.Positive(t, strikeOnce(t, d, "storm of viewers").Count)
	assert.GreaterOrEqual(t, d.tower.relay.Stats().Connected, uint64(stormViewers))
}

// TestDynamoDBThrottled: while DynamoDB refuses everything the tiles go on, and the ledger and the checkpointer do
// afterwards.
func TestDynamoDBThrottled(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Parallel()
	d := deploy(t, "-stack", "local", "-chaos", "-tiles", "2", "-tick", "100ms")
	k := strikeOnce(t, d, "DynamoDB throttled")
	assert.Positive(t, k.Recovery)
	assert.Positive(t, d.backends.throttle.Refused.Load(), "something was refused")
}
