package tile_test

import (
	"fmt"
	"sync/atomic"
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

// A border is closed as soon as the other tile has said that it takes nothing, and until it answers: also when what is
// sent after that is lost.
func TestABorderThatRefusesIsClosedAtOnce(t *testing.T) {
	for _, refusal := range []error{&fence.ArgumentError{Field: "Durable", Want: "the other kind"},
		&tile.QuarantinedError{Tile: 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSea(t)
			var said atomic.Pointer[error]
			said.Store(&refusal)
			s.answers = func(tile.Presentation) error { return *said.Load() }
			s.open(1, &port{}, tile.Config{})
			s.open(2, &port{}, tile.Config{})
			for _, name := range []string{"argo", "hope", "nina"} {
				_, err := s.order(1, sailing{Born: name})
				require.NoError(t, err)
			}
			leaves := func(name string) stream.Outcome {
				o, err := s.order(1, sailing{Gone: name, To: 2})
				require.NoError(t, err)
				return o.Outcome
			}
			assert.Equal(t, stream.Applied, leaves("argo"), "nothing is known yet")
			assert.Equal(t, stream.Fizzled, leaves("hope"), "a tick later, it is")
			b := s.owner(1).Borders()
			require.Len(t, b, 1)
			assert.False(t, b[0].Closed.IsZero())
			lost := errLost
			said.Store(&lost)
			time.Sleep(time.Second)
			assert.Equal(t, stream.Fizzled, leaves("hope"))

			require.NoError(t, s.owner(1).drain())
			said.Store(&refusal)
			s.open(1, &port{}, tile.Config{})
			time.Sleep(500 * time.Millisecond)
			assert.Equal(t, stream.Fizzled, leaves("hope"), "the next owner has asked")
			said.Store(new(error))
			time.Sleep(2 * time.Second)
			assert.Equal(t, stream.Applied, leaves("nina"))
			time.Sleep(2 * time.Second)
			assert.Equal(t, map[string][]fence.TileID{"argo": {2}, "hope": {1}, "nina": {2}}, s.census())
			s.drainAll()
		})
	}
}

// What is under way from a tile that is quarantined waits in its history, also if the owner that comes then leaves an
// event out, and so replaces the history.
func TestWhatIsUnderWayFromAQuarantinedTileWaits(t *testing.T) {
	for name, lifted := range map[string]bool{"released": false, "lifted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSea(t)
				s.open(1, &port{}, tile.Config{})
				s.open(2, &port{}, tile.Config{})
				s.loses(func() (bool, bool) { return true, false })
				for _, ship := range []sailing{{Born: "argo"}, {Gone: "argo", To: 2}, {Born: "hope"}} {
					_, err := s.order(1, ship)
					require.NoError(t, err)
				}
				last, err := s.log.Last(t.Context(), 1)
				require.NoError(t, err)
				s.kill(1)
				q := fence.Quarantine{At: fence.EventRef{Seq: last.Seq, Index: 1}, By: "1:1"}
				set := func(expected fence.Epoch) fence.Grant {
					contact, err := q.Contact()
					require.NoError(t, err)
					g, err := s.authority.Promote(t.Context(), fence.Claim{Tile: 1, Contact: contact,
						ID: fence.NewClaimID(), Expected: expected})
					require.NoError(t, err)
					return g
				}
				g := set(last.Epoch)
				s.loses(func() (bool, bool) { return false, false })
				said := s.presented.Load()
				refused := s.open(1, &port{}, tile.Config{})
				<-refused.done
				require.ErrorIs(t, refused.err, tile.ErrQuarantined)
				time.Sleep(time.Minute)
				assert.Equal(t, said, s.presented.Load())
				assert.NotNil(t, s.owner(1).Status().Quarantine)
				want := map[string][]fence.TileID{"argo": {2}, "hope": {1}}
				if lifted {
					q.Lifted, q.Skip = true, []fence.EventRef{q.At}
					set(g.Epoch)
					delete(want, "hope")
				} else {
					require.NoError(t, s.authority.Release(t.Context(), g))
				}
				s.open(1, &port{}, tile.Config{})
				time.Sleep(10 * time.Second)
				assert.Equal(t, want, s.census())
				s.drainAll()
			})
		})
	}
}

// No replica of tile 1 confirms for an hour, and ships want to sail both ways at each tick. What departs before the
// border closes waits; then the rules are told that there is no room. What was decided waits, too. Then all arrive.
func TestABorderClosesWhileNothingIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ships = 100
		s := newSea(t)
		store := &unconfirmedStore{Store: s.store}
		cfg := tile.Config{TickInterval: 100 * time.Millisecond, ConfirmEvery: 1 << 20}
		s.open(2, &port{}, cfg)
		s.confirming = store
		s.open(1, &port{}, cfg)
		for _, from := range []fence.TileID{1, 2} {
			for i := range ships {
				_, err := s.order(from, sailing{Born: fmt.Sprint("of ", from, ": ", i)})
				require.NoError(t, err)
			}
		}
		store.behind.Store(true)
		sail := func(from fence.TileID) (left int) {
			for i := range ships {
				o, err := s.order(from, sailing{Gone: fmt.Sprint("of ", from, ": ", i), To: uint64(3 - from)})
				require.NoError(t, err)
				if o.Outcome == stream.Applied {
					left++
				}
			}
			return left
		}
		left := sail(1)
		assert.InDelta(t, 21, left, 3, "in the first two seconds")
		arrived := sail(2)
		assert.Equal(t, ships, arrived, "tile 1 decides, and its answers come too late to close the border")
		time.Sleep(time.Hour)
		assert.Zero(t, sail(1))
		b := s.owner(1).Status().Border
		assert.Equal(t, left, b.UnderWay)
		assert.InDelta(t, time.Hour, time.Since(b.Unconfirmed), float64(time.Minute))
		assert.Equal(t, b.Unconfirmed, b.Closed)
		assert.Equal(t, b.Unconfirmed, s.owner(1).Borders()[0].Unconfirmed)
		assert.Zero(t, s.owner(2).Status().Border.Unconfirmed)
		assert.Equal(t, ships, s.owner(2).Status().UnderWay, "nothing was answered")

		store.behind.Store(false)
		time.Sleep(10 * time.Second)
		assert.Zero(t, s.owner(1).Status().Border)
		assert.Zero(t, s.owner(2).Status().Border)
		found := s.census()
		require.Len(t, found, 2*ships)
		in := map[fence.TileID]int{}
		for name, at := range found {
			require.Len(t, at, 1, name)
			in[at[0]]++
		}
		assert.Equal(t, map[fence.TileID]int{1: 2*ships - left, 2: left}, in)
		s.drainAll()
	})
}
