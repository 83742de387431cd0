package tile_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestAMoveWithAnIDHappensOnce, for each actor that uses the ID, and for the next owner, which finds it in the stream
// or in the snapshot. It is no action.
func TestAMoveWithAnIDHappensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		move := func(p *runner, actor, word string) stream.Outcome {
			r, err := p.Submit(t.Context(), tile.Intent{Tile: testTile, MoveID: "m", Actor: actor, Body: []byte(word)})
			require.NoError(t, err)
			return r.Outcome
		}
		first := w.start("a:1", tile.Config{Durability: tile.ReplicatedActions}) // a move needs no replica
		assert.Equal(t, stream.Applied, move(first, "ann", "north"))
		assert.Equal(t, stream.Applied, move(first, "ann", "no"), "the outcome that it had")
		assert.Equal(t, stream.Fizzled, move(first, "bob", "no"), "an ID is its actor's own")
		require.NoError(t, first.drain())
		second := w.start("b:1", tile.Config{})
		assert.Equal(t, stream.Applied, move(second, "ann", "north"))
		assert.Equal(t, stream.Fizzled, move(second, "bob", "north"))
		assert.Equal(t, []string{"north"}, w.history())
		d, err := tile.Outcomes(t.Context(), w.log, testTile)
		require.NoError(t, err)
		assert.Empty(t, d.Outcomes)

		for _, in := range []tile.Intent{{Tile: testTile, MoveID: "m", ActionID: "a"},
			{Tile: testTile, MoveID: "\x00"}} {
			_, err = second.Submit(t.Context(), in)
			assert.ErrorIs(t, err, fence.ErrInvalidArgument)
		}
	})
}
