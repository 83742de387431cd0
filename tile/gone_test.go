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

// crossed says where a tile answers that ann is; zero: it asked its rules.
func (s *sea) crossed(id fence.TileID) tile.Crossing {
	s.t.Helper()
	r, err := s.orderOf(id, tile.Intent{Actor: "ann"}, sailing{Gone: "no ship"})
	if err == nil {
		assert.Equal(s.t, stream.Fizzled, r.Outcome)
		return r.Crossing
	}
	var e *tile.CrossedError
	require.ErrorAs(s.t, err, &e)
	require.ErrorIs(s.t, err, tile.ErrCrossed)
	assert.Equal(s.t, id, e.Tile)
	return e.Crossing
}

// sails gives ann a ship, and sends it off.
func (s *sea) sails(from, to fence.TileID) (tile.Result, error) {
	s.t.Helper()
	_, err := s.order(from, sailing{Born: "argo"})
	require.NoError(s.t, err)
	return s.orderOf(from, tile.Intent{Actor: "ann", ActionID: "a"}, sailing{Gone: "argo", To: uint64(to)})
}

func TestTheAnswerSaysWhereTheActorWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{}, tile.Config{})
		s.open(2, &port{}, tile.Config{})
		_, err := s.order(1, sailing{Born: "argo"})
		require.NoError(t, err)
		other := make(chan tile.Result, 2)
		for _, in := range []tile.Intent{{Actor: "ann"}, {Actor: "bob"}} { // in the same tick
			go func() {
				r, _ := s.orderOf(1, in, sailing{Gone: "no ship"})
				other <- r
			}()
		}
		r, err := s.orderOf(1, tile.Intent{Actor: "ann"}, sailing{Gone: "argo", To: 2})
		require.NoError(t, err)
		to := tile.Crossing{Entity: "argo", To: 2}
		assert.Equal(t, tile.Result{Outcome: stream.Applied, Crossing: to}, r)
		assert.Equal(t, "applied, crossed to 2", r.String())
		assert.ElementsMatch(t, []tile.Crossing{to, {}}, []tile.Crossing{(<-other).Crossing, (<-other).Crossing})
		s.drainAll()
	})
}

func TestALateIntentIsAnsweredWithWhereItsActorWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{}, tile.Config{})
		s.open(2, &port{}, tile.Config{})
		s.loses(func() (bool, bool) { return true, false })
		_, err := s.sails(1, 2)
		require.NoError(t, err)
		to := tile.Crossing{Entity: "argo", To: 2}
		time.Sleep(time.Minute)
		assert.Equal(t, to, s.crossed(1), "as long as it is under way")
		r, err := s.orderOf(1, tile.Intent{Actor: "ann", ActionID: "a"}, sailing{})
		require.NoError(t, err)
		assert.Equal(t, tile.Result{Outcome: stream.Applied, Crossing: to}, r, "one decided here is answered here")
		_, err = s.orderOf(1, tile.Intent{Actor: "ann", ActionID: "b"}, sailing{})
		require.ErrorIs(t, err, tile.ErrCrossed)
		r, err = s.orderOf(1, tile.Intent{Actor: "ann", Origin: tile.OriginServer}, sailing{Gone: "no ship"})
		require.NoError(t, err)
		assert.Equal(t, tile.Result{Outcome: stream.Fizzled}, r, "a server of the game means this tile")

		s.kill(1)
		s.open(1, &port{}, tile.Config{})
		assert.Equal(t, to, s.crossed(1), "the next owner knows it")

		s.loses(func() (bool, bool) { return false, false })
		time.Sleep(2 * time.Second)
		assert.Zero(t, s.owner(1).Status().UnderWay)
		assert.Equal(t, to, s.crossed(1), "for a while after it was taken")
		assert.Zero(t, s.crossed(2))
		time.Sleep(6 * time.Second)
		assert.Zero(t, s.crossed(1), "and no longer")
		s.drainAll()
	})
}

func TestAnActorThatIsBackIsAnsweredByTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSea(t)
		s.open(1, &port{}, tile.Config{})
		full := s.open(2, &port{refuse: true}, tile.Config{})
		_, err := s.sails(1, 2)
		require.NoError(t, err)
		assert.Equal(t, fence.TileID(2), s.crossed(1).To)
		time.Sleep(2 * time.Second)
		assert.Zero(t, s.crossed(1), "it was refused")

		require.NoError(t, full.Inspect(t.Context(), func(r tile.Rules, _ fence.Position) { r.(*port).refuse = false }))
		from, to := fence.TileID(1), fence.TileID(2)
		for range 3 {
			r, err := s.orderOf(from, tile.Intent{Actor: "ann"}, sailing{Gone: "argo", To: uint64(to)})
			require.NoError(t, err)
			assert.Equal(t, to, r.Crossing.To)
			time.Sleep(2 * time.Second)
			assert.Equal(t, to, s.crossed(from).To)
			assert.Zero(t, s.crossed(to), "it has come back, within the time that it is remembered to have left")
			from, to = to, from
		}
		s.drainAll()
	})
}
