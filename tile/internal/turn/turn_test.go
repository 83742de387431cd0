package turn

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
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

// widest is the widest gap between places, as a fraction of the interval.
func (s *Spread) widest() float64 {
	last, widest := s.taken[len(s.taken)-1], uint64(0)
	for _, place := range s.taken {
		widest, last = max(widest, place-last-1), place
	}
	return float64(widest) / (1 << 64)
}

func TestSpreadLeavesNoGapTwiceAsWideAsNeeded(t *testing.T) {
	var s Spread
	for n := 1; n <= 1000; n++ {
		s.take(fence.TileID(n))
		assert.LessOrEqual(t, s.widest(), 2/float64(n))
	}
}

func TestSpreadFillsWhatTilesLeave(t *testing.T) {
	var s Spread
	var places []uint64
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range fence.TileID(64) {
		places = append(places, s.take(n))
	}
	for n := range fence.TileID(5000) {
		i := rng.IntN(len(places))
		s.free(places[i])
		places[i] = s.take(1000 + n)
		assert.Len(t, s.taken, 64)
		assert.LessOrEqual(t, s.widest(), 2./64)
	}
}

func TestSpreadCountsFromTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 500 * time.Millisecond
		var s Spread
		var due []time.Time
		for range 2 {
			time.Sleep(123 * time.Millisecond)
			wait, free := s.Take(7, interval)
			assert.True(t, wait >= 0 && wait < interval)
			due = append(due, time.Now().Add(wait))
			defer free()
		}
		assert.InDelta(t, interval/2, due[1].Sub(due[0]).Abs()%interval, 2, "whenever the tiles begin")
	})
}
