package tile_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/tile"
)

// Three ports are full, and each of their ships tries again and again to sail to the next one. Each is refused there
// and comes home, and nothing waits for another. Now and then an owner is killed or superseded, and the rules of the
// next one fail with a ship. One that comes from another port is refused for that. One that comes home is parked until
// other rules take it.
func TestPortsThatAreFullRefuseEachOther(t *testing.T) {
	for _, n := range seed.Many(t, 3) {
		synctest.Test(t, func(t *testing.T) {
			sailInCircles(t, rand.New(rand.NewPCG(n, 2)))
			if t.Failed() {
				t.Logf("seed %d", n)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func sailInCircles(t *testing.T, r *rand.Rand) {
	const ports, berths = 3, 4
	s, home := newSea(t), map[string][]fence.TileID{}
	back, parked := map[string]int{}, 0
	count := func(reason string, more int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		back[reason]++
		parked += more
	}
	open := func(id fence.TileID, poison string) {
		s.open(id, &port{berths: berths, poison: poison, back: func(reason string) { count(reason, 0) }},
			tile.Config{SnapshotEvery: 7, Hooks: tile.Hooks{Committed: func(i tile.CommitInfo) {
				if i.Parked > 0 {
					count("", i.Parked)
				}
			}}})
	}
	name := func(id fence.TileID, i int) string { return fmt.Sprint("ship ", i, " of ", id) }
	next := func(id fence.TileID) fence.TileID { return id%ports + 1 }
	for id := fence.TileID(1); id <= ports; id++ {
		open(id, "")
		for i := range berths {
			home[name(id, i)] = []fence.TileID{id}
			_, err := s.order(id, sailing{Born: name(id, i)})
			require.NoError(t, err)
		}
	}
	sail := func(id fence.TileID, i int) {
		_, _ = s.order(id, sailing{Gone: name(id, i), To: uint64(next(id))}) // its owner may be gone
		for ship, at := range s.census() {
			require.Equal(t, home[ship], at, ship)
		}
	}
	for round := range 60 {
		from := fence.TileID(1 + r.IntN(ports))
		switch round { // each of these comes up, whatever the seed
		case 20:
			open(2, name(1, 0)) // fails with what arrives
			sail(1, 0)
		case 30:
			open(1, name(1, 1)) // fails with what comes home
			sail(1, 1)
			time.Sleep(5 * time.Second)
		}
		for range 3 {
			sail(from, r.IntN(berths))
			from = next(from)
		}
		switch r.IntN(12) {
		case 0:
			s.kill(from)
			open(from, name(from, r.IntN(berths)))
		case 1:
			open(from, name(next(next(from)), r.IntN(berths)))
		}
	}
	for id := fence.TileID(1); id <= ports; id++ {
		open(id, "")
	}
	time.Sleep(time.Minute)
	assert.Equal(t, home, s.census())
	for id := fence.TileID(1); id <= ports; id++ {
		assert.Zero(t, s.owner(id).Status().UnderWay)
		for _, h := range s.owners[id] {
			h.stop()
		}
	}
	for _, all := range s.owners {
		for _, h := range all {
			<-h.done
		}
	}
	assert.Positive(t, parked)
	assert.Greater(t, back["the port is full"], 20)
	assert.Greater(t, len(back), 2, "a ship was refused since the rules fail with it")
	t.Log(parked, "parked;", back)
}
