package tile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// slowRules take their time to decide, to fold and to encode.
type slowRules struct{ ledgerRules }

func (r *slowRules) Play(_ fence.Tick, in tile.Inputs) tile.Outputs {
	time.Sleep(10 * time.Millisecond)
	return tile.Outputs{Events: [][]byte{[]byte("x")}}
}

func (r *slowRules) Apply(now fence.Tick, events [][]byte) error {
	time.Sleep(5 * time.Millisecond)
	return r.ledgerRules.Apply(now, events)
}

// TestWorkOfATick: an owner says what its ticks take, and a store that is slow is no work.
func TestWorkOfATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, err := tile.New(testTile, "a:1", w.seams(), &slowRules{}, &tile.Config{TakeOver: true})
		require.NoError(t, err)
		r := launch(t, p, nil)
		time.Sleep(2 * time.Minute)
		assert.InDelta(t, 15*time.Millisecond, p.Status().Work, float64(time.Millisecond))
		require.NoError(t, r.drain())
	})
}
