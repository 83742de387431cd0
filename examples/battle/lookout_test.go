package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// TestThePageShowsWhatInspectorsSay: the owner is the one that serves under the highest epoch, at its pace; a host that
// was paused still believes in an epoch of its own, and one that was silent for long is no warm follower.
func TestThePageShowsWhatInspectorsSay(t *testing.T) {
	const id fence.TileID = 0x85283083fffffff
	says := func(contact string, ago time.Duration, p tilefence.InspectedTile) sighting {
		p.Tile = id
		seen := tilefence.Inspection{Contact: contact, Tiles: []tilefence.InspectedTile{p}}
		return sighting{seen, time.Now().Add(-ago)}
	}
	contacts := []string{"ann:1", "bob:1", "cat:1", "dan:1"}
	l := &lookout{seen: map[string]sighting{
		"ann:1": says("ann:1", time.Minute, tilefence.InspectedTile{State: "serving", Owner: "ann:1", Epoch: 1, Held: 1,
			Seq: 40}),
		"bob:1": says("bob:1", 0, tilefence.InspectedTile{State: "serving", Owner: "bob:1", Epoch: 2, Held: 2, Seq: 50,
			Tick: 60, Heat: 3, Dilation: 1.5, Position: "2:50", Floor: stream.Checkpointed,
			Marks: []tilefence.InspectedMark{{Consumer: stream.Checkpointed, Seq: 43, Behind: 7}}}),
		"cat:1": says("cat:1", 0, tilefence.InspectedTile{State: "following", Owner: "bob:1", Epoch: 2, Seq: 50}),
		"dan:1": says("dan:1", time.Minute, tilefence.InspectedTile{State: "following", Owner: "ann:1", Epoch: 1}),
	}}
	now := spectator.TileStatus{Tile: id}
	owner := l.shows(&now, contacts)
	assert.Equal(t, fence.Owner{Tile: id, Epoch: 2, Contact: "bob:1", Tick: 60}, owner)
	assert.Equal(t, spectator.TileStatus{Tile: id, Seq: 50, Position: "2:50", State: "serving", Heat: 3, Followers: 1,
		Dilation: 1.5, Marks: []spectator.Mark{{Consumer: "checkpoint", Behind: 7}}, Floor: "checkpoint", AtRisk: 7,
		Processors: []spectator.Processor{
			{Contact: "ann:1", State: "serving", Epoch: 1}, {Contact: "bob:1", State: "serving", Epoch: 2}}}, now)

	delete(l.seen, "ann:1")
	delete(l.seen, "bob:1") // they are gone, and the follower has not asked for the tile yet
	now = spectator.TileStatus{Tile: id}
	owner = l.shows(&now, contacts)
	assert.Equal(t, "bob:1", owner.Contact)
	assert.Empty(t, now.State)
	assert.Empty(t, now.Processors)
}

// TestTicksMayLastLonger: every pace of the options, in every class, leaves room for dilation, or needs none.
func TestTicksMayLastLonger(t *testing.T) {
	store, durable := memfence.New(), memcheckpoint.New()
	for _, tick := range []time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, time.Hour} {
		o := &options{tick: tick}
		cfg := tile.Config{TickInterval: tick, SuspectAfter: o.silence(), Durability: tile.WriteThrough,
			Limits: tile.Limits{MaxDilation: o.maxDilation()}}
		_, err := cfg.WithDefaults(tile.Seams{Authority: memfence.NewAuthority(), Store: store,
			Log: memstream.New(store), Journal: durable, Checkpoint: durable.Get})
		require.NoError(t, err, "%v", tick)
		assert.Equal(t, tick <= 3*time.Second, cfg.MaxDilation > 1)
	}
}
