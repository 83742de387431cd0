package tile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// The destination does not answer for a minute: it is away, quarantined, or full. What is under way waits and is
// counted, its age grows with the ticks and outlasts the owner, and nothing more departs. Then all arrive.
func TestABorderThatIsClosedIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{}, tile.Config{})
		s.open(2, &port{}, tile.Config{})
		away := true
		s.loses(func() (bool, bool) { return away, false })
		for _, name := range []string{"argo", "hope"} {
			_, err := s.order(1, sailing{Born: name})
			require.NoError(t, err)
		}
		assert.Zero(t, s.owner(1).Status().Border)
		_, err := s.order(1, sailing{Gone: "argo", To: 2})
		require.NoError(t, err)
		left := s.owner(1).Status().Tick
		time.Sleep(time.Minute)
		o, err := s.order(1, sailing{Gone: "hope", To: 2})
		require.NoError(t, err)
		assert.Equal(t, stream.Fizzled, o.Outcome, "there is no room")
		b := s.owner(1).Status().Border
		assert.InDelta(t, float64(s.owner(1).Status().Tick-left), float64(b.Oldest), 1)
		assert.InDelta(t, time.Minute, b.For, float64(2*time.Second))
		assert.InDelta(t, time.Minute, time.Since(b.Closed), float64(2*time.Second))
		want := tile.BorderStatus{Peer: 2, UnderWay: 1, Oldest: b.Oldest, For: b.For, Closed: b.Closed}
		assert.Equal(t, want, b)
		assert.Equal(t, []tile.BorderStatus{want}, s.owner(1).Borders())

		require.NoError(t, s.owner(1).drain())
		assert.Empty(t, s.owner(1).Borders(), "it is not served here")
		s.open(1, &port{}, tile.Config{})
		time.Sleep(5 * time.Second)
		assert.Greater(t, s.owner(1).Status().Border.Oldest, b.Oldest, "the age outlasts the owner")

		s.loses(func() (bool, bool) { return false, false })
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string][]fence.TileID{"argo": {2}, "hope": {1}}, s.census())
		assert.Zero(t, s.owner(1).Status().Border)
		assert.Equal(t, []tile.BorderStatus{{Peer: 2}}, s.owner(1).Borders())
		s.drainAll()
	})
}
