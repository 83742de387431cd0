package turn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func TestEachTileHasItsTurnOnceInAnInterval(t *testing.T) {
	const every = 60
	for id := range fence.TileID(200) {
		turns := 0
		for tick := range fence.Tick(every) {
			is := Is(id, Confirm, 1000+tick, every)
			assert.Equal(t, is, Count(id, Confirm, 1000+tick, every) > Count(id, Confirm, 999+tick, every))
			if is {
				turns++
			}
		}
		require.Equal(t, 1, turns, "tile %d", id)
	}
}

func TestNeighboursArePartedAndPurposesIndependent(t *testing.T) {
	const tiles, places = 6000, 6
	var phases, at [places]int
	same := 0
	for i := range fence.TileID(tiles) {
		id := 0x85283083fffffff + i<<20
		phase := Phase(id, time.Second)
		require.Less(t, phase, time.Second)
		phases[phase*places/time.Second]++
		at[Place(id, Snapshot, places)]++
		if Place(id, Snapshot, places) == Place(id, Confirm, places) {
			same++
		}
	}
	for i := range places {
		assert.InDelta(t, tiles/places, phases[i], 150)
		assert.InDelta(t, tiles/places, at[i], 150)
	}
	assert.InDelta(t, tiles/places, same, 150)
}
