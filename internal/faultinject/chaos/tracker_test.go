package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// TestLateCommits: what a host that was cut off commits to a tile counts against it once another has taken the tile,
// until it owns the tile again.
func TestLateCommits(t *testing.T) {
	const id, other fence.TileID = 1, 2
	v, tr := NewTracker(), &outage{began: time.Now(), victim: "ann:1", fenced: true}
	v.begin(tr, []fence.TileID{id, other})
	v.Committed(id, "ann:1", 4)
	v.Moved("bob:1", tile.TransitionInfo{Tile: id, From: tile.Installing, To: tile.Serving, Epoch: 5})
	v.Committed(id, "bob:1", 5)
	v.Committed(other, "ann:1", 4)
	assert.Zero(t, v.late(tr))
	v.Committed(id, "ann:1", 4)
	assert.Equal(t, 1, v.late(tr))
	v.Committed(id, "ann:1", 6)
	assert.Equal(t, 1, v.late(tr))
}
