package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

const there = here + 1

// crossed is the answer of a tile that ann has left for another.
func crossed(from, to fence.TileID) error {
	return &tile.CrossedError{Tile: from, Crossing: tile.Crossing{Entity: "argo", To: to}}
}

func TestAMovementFollowsItsActor(t *testing.T) {
	r := newRig(t, nil)
	r.world.answers = []error{crossed(here, there)}
	got, err := r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
	require.NoError(t, err)
	assert.Equal(t, tile.Result{Outcome: stream.Applied, Crossing: tile.Crossing{Entity: "argo", To: there}}, got)
	assert.Equal(t, there, r.world.last.Tile)

	// Once: a player who goes from tile to tile is told where to send the next intent.
	r.world.calls, r.world.answers = 0, []error{crossed(here, there), crossed(there, there+1)}
	_, err = r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
	var e *tile.CrossedError
	require.ErrorAs(t, err, &e)
	assert.Equal(t, there+1, e.To)
	assert.Equal(t, 2, r.world.calls)

	r.world.answers = []error{crossed(here, there), tile.ErrOverloaded}
	_, err = r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
	require.ErrorIs(t, err, tile.ErrOverloaded)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, there, e.To, "what it could not deliver there, the client can")
}

// What the game refuses in a tile, it refuses to those who were sent there.
func TestAMovementThatFollowsIsChecked(t *testing.T) {
	no := errors.New("no entry")
	for name, c := range map[string]struct {
		cfg  admission.GatewayConfig
		want error
	}{
		"tile": {admission.GatewayConfig{Allow: func(id fence.TileID) error {
			return map[fence.TileID]error{there: no}[id]
		}}, fence.ErrInvalidArgument},
		"move": {admission.GatewayConfig{CheckMove: func(_ context.Context, in tile.Intent) error {
			return map[fence.TileID]error{there: no}[in.Tile]
		}}, admission.ErrDeclined},
		"rate": {admission.GatewayConfig{TileRate: admission.Rate{PerSecond: 1e-9, Burst: 1}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &c.cfg)
			r.world.answers = []error{crossed(here, there)}
			if c.want == nil { // another player's has used the turn up
				_, err := r.gate.Move(t.Context(), tile.Intent{Tile: there, Actor: "bob"})
				require.ErrorIs(t, err, tile.ErrCrossed)
				r.world.answers, c.want = []error{crossed(here, there)}, admission.ErrLimited
			}
			calls := r.world.calls
			_, err := r.gate.Move(t.Context(), tile.Intent{Tile: here, Actor: "ann"})
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, err, tile.ErrCrossed)
			assert.Equal(t, calls+1, r.world.calls)
		})
	}
}

// An action is decided in one tile: another would not know that this one has forgotten it.
func TestAnActionOfAnActorThatHasCrossedIsGivenBack(t *testing.T) {
	r := newRig(t, nil)
	r.credit("ann", 1)
	r.world.answers = []error{crossed(here, there)}
	art, err := r.gate.Act(t.Context(), play("x"))
	require.NoError(t, err)
	assert.Equal(t, stream.Redirected, art.Outcome)
	assert.True(t, art.Refunded)
	assert.Equal(t, there, art.Crossing.To)
	assert.Equal(t, 1, r.world.calls, "it is not sent there")
	assert.Equal(t, admission.Amount(1), r.balance("ann"))

	// If an attempt before may have been decided, the action stays open.
	r.world.loseReplies = 1
	_, err = r.gate.Act(t.Context(), play("y"))
	require.ErrorIs(t, err, admission.ErrPending)
	r.world.answers = []error{crossed(here, there)}
	_, err = r.gate.Act(t.Context(), play("y"))
	require.ErrorIs(t, err, admission.ErrPending)
	require.ErrorIs(t, err, tile.ErrCrossed)
	assert.Zero(t, r.balance("ann"))
	art, err = r.gate.Act(t.Context(), play("y"))
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, art.Outcome)
}
