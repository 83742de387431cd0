package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// TestWhatIsUnderWayForLongIsAProblem: also when it is parked, and not while it only crosses.
func TestWhatIsUnderWayForLongIsAProblem(t *testing.T) {
	var all Problems
	s := tile.Status{Tile: 1, State: tile.Serving, UnderWay: 3,
		Border: tile.BorderStatus{Peer: 2, UnderWay: 3, Oldest: 8, For: 4 * time.Second}}
	all.Tile(&s, time.Second)
	assert.Empty(t, all)
	s.Border = tile.BorderStatus{Peer: 2, UnderWay: 2, Oldest: 100, For: 50 * time.Second, Parked: 1,
		Closed: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	all.Tile(&s, time.Second)
	assert.Len(t, all, 2)
	assert.Equal(t, 50*time.Second, all[0].For)
	assert.Equal(t, "2 are under way, the oldest to tile 2 for 100 ticks; a border is closed since "+
		"2026-01-02T03:04:05Z; see tilectl transfers", all[0].Detail)
	assert.Equal(t, "transfers", all[1].Plane)
	assert.Equal(t, "1; see tilectl transfers", all[1].Detail)

	all = nil
	s.Border.Parked, s.Border.Unconfirmed = 0, time.Now().Add(-time.Minute)
	all.Tile(&s, time.Second)
	assert.Len(t, all, 1)
	assert.Contains(t, all[0].What, "replicas or journals do not confirm")
	assert.InDelta(t, time.Minute, all[0].For, float64(time.Second))
	assert.Equal(t, "2 are under way and wait; bring back the replicas of the tile's shard, or the durable store",
		all[0].Detail)
	all = nil
	s.Border = tile.BorderStatus{Unconfirmed: time.Now().Add(-3 * time.Second)}
	all.Tile(&s, time.Second)
	assert.Empty(t, all)
}

// TestContests: a tile that was taken three times in a minute is contested, until the first of them is a minute ago.
func TestContests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const often, seldom fence.TileID = 1, 2
		var c Flapping
		contested := func() (all Problems) { c.Add(&all); return all }
		for range 4 {
			c.Note(seldom)
			assert.Empty(t, contested())
			time.Sleep(31 * time.Second)
		}
		for range 3 {
			assert.Empty(t, contested())
			c.Note(often)
			time.Sleep(10 * time.Second)
		}
		all := contested()
		if assert.Len(t, all, 1) {
			assert.Equal(t, often, all[0].Tile)
			assert.Equal(t, 30*time.Second, all[0].For)
		}
		time.Sleep(31 * time.Second)
		assert.Empty(t, contested())
		time.Sleep(time.Minute)
		assert.Empty(t, contested())
		assert.Empty(t, c.lost, "what is over is forgotten")
	})
}
