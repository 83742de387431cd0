package statuspoller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/stream"
)

// TestThePageShowsWhatInspectorsSay: the owner is the one that serves under the highest epoch, at its pace; a host that
// was paused still believes in an epoch of its own, and one that was silent for long is no warm follower.
func TestThePageShowsWhatInspectorsSay(t *testing.T) {
	const id fence.TileID = 0x85283083fffffff
	says := func(contact string, ago time.Duration, p inspect.Tile) inspection {
		p.Tile = id
		seen := inspect.Server{Contact: contact, Tiles: []inspect.Tile{p}}
		return inspection{seen, time.Now().Add(-ago)}
	}
	contacts := []string{"ann:1", "bob:1", "cat:1", "dan:1"}
	l := &inspectors{seen: map[string]inspection{
		"ann:1": says("ann:1", time.Minute, inspect.Tile{State: "serving", Owner: "ann:1", Epoch: 1, Held: 1,
			Seq: 40}),
		"bob:1": says("bob:1", 0, inspect.Tile{State: "serving", Owner: "bob:1", Epoch: 2, Held: 2, Seq: 50,
			Tick: 60, Heat: 3, Dilation: 1.5, Position: "2:50", Floor: stream.Checkpointed,
			Marks: []inspect.Mark{{Consumer: stream.Checkpointed, Seq: 43, Behind: 7}}}),
		"cat:1": says("cat:1", 0, inspect.Tile{State: "following", Owner: "bob:1", Epoch: 2, Seq: 50}),
		"dan:1": says("dan:1", time.Minute, inspect.Tile{State: "following", Owner: "ann:1", Epoch: 1}),
	}}
	now := TileStatus{Tile: id}
	owner := l.shows(&now, contacts)
	assert.Equal(t, fence.Owner{Tile: id, Epoch: 2, Contact: "bob:1", Tick: 60}, owner)
	assert.Equal(t, TileStatus{Tile: id, Seq: 50, Position: "2:50", State: "serving", Heat: 3, Followers: 1,
		Dilation: 1.5, Marks: []Mark{{Consumer: "checkpoint", Behind: 7}}, Floor: "checkpoint", AtRisk: 7,
		Processors: []Processor{
			{Contact: "ann:1", State: "serving", Epoch: 1}, {Contact: "bob:1", State: "serving", Epoch: 2}}}, now)

	delete(l.seen, "ann:1")
	delete(l.seen, "bob:1") // they are gone, and the follower has not asked for the tile yet
	now = TileStatus{Tile: id}
	owner = l.shows(&now, contacts)
	assert.Equal(t, "bob:1", owner.Contact)
	assert.Empty(t, now.State)
	assert.Empty(t, now.Processors)
}
