package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
)

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
