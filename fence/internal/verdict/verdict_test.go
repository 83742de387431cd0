package verdict_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
	"github.com/tilefence/tilefence/internal/guard"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	id := fence.NewClaimID()
	grant := func(tile fence.TileID, epoch fence.Epoch, id fence.ClaimID) error {
		a := verdict.Authority{Present: func(context.Context, verdict.Call) (fence.Grant, error) {
			return fence.Grant{Tile: tile, Epoch: epoch, ID: id}, nil // released already
		}}
		return a.Release(t.Context(), fence.Grant{Tile: tile, Epoch: epoch, ID: id})
	}
	for _, test := range []struct {
		name, field string
		err         error
	}{
		{"grant", "", grant(1, fence.MaxNumber, id)},
		{"grant without tile", "tile", grant(0, 1, id)},
		{"grant without epoch", "epoch", grant(1, 0, id)},
		{"grant of an epoch too high", "epoch", grant(1, fence.MaxNumber+1, id)},
		{"grant without ID", "claim ID", grant(1, 1, fence.ClaimID{})},
		{"tile", "", guard.Tile(1)},
		{"no tile", "tile", guard.Tile(0)},
		{"lowest limit", "", verdict.ValidateLimit(1)},
		{"highest limit", "", verdict.ValidateLimit(fence.MaxList)},
		{"negative limit", "limit", verdict.ValidateLimit(-1)},
		{"no limit", "limit", verdict.ValidateLimit(0)},
		{"limit too high", "limit", verdict.ValidateLimit(fence.MaxList + 1)},
		{"retire", "", verdict.ValidateRetire(0, 1)},
		{"retire without limit", "limit", verdict.ValidateRetire(0, 0)},
		{"retire the future", "released for", verdict.ValidateRetire(-1, 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.field == "" {
				require.NoError(t, test.err)
				return
			}
			var bad *fence.ArgumentError
			require.ErrorAs(t, test.err, &bad)
			require.Equal(t, test.field, bad.Field)
			require.NotEmpty(t, bad.Want)
		})
	}
}

// An epoch that is no number of Tilefence is not passed on, whatever asks for it.
func TestImpossibleRow(t *testing.T) {
	t.Parallel()
	c := fence.Claim{Tile: 1, Contact: "a:1", ID: fence.NewClaimID()}
	for _, epoch := range []fence.Epoch{fence.MaxNumber + 1, 1<<64 - 1} {
		row := fence.Grant{Tile: 1, Epoch: epoch, Contact: "a:1", ID: c.ID}
		a := verdict.Authority{Present: func(context.Context, verdict.Call) (fence.Grant, error) { return row, nil }}
		_, err := verdict.JudgeClaim(&c, row)
		require.ErrorIs(t, err, fence.ErrCorrupt)
		_, err = a.Claim(t.Context(), c)
		require.ErrorIs(t, err, fence.ErrCorrupt)
		_, err = a.Promote(t.Context(), c)
		require.ErrorIs(t, err, fence.ErrCorrupt)
		g, err := a.Lookup(t.Context(), 1)
		require.ErrorIs(t, err, fence.ErrCorrupt)
		require.Zero(t, g)
		require.ErrorIs(t, a.Release(t.Context(), fence.Grant{Tile: 1, Epoch: 1, ID: c.ID}), fence.ErrCorrupt)
	}
}
