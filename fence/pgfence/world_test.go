package pgfence_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestWorlds: two worlds in one database have tables and identities of their own, and a table is of one world.
func TestWorlds(t *testing.T) {
	pool := newPool(t, stacktest.PostgresDB(t))
	of := func(cfg pgfence.Config) (fence.World, error) {
		a, err := pgfence.New(pool, &cfg)
		require.NoError(t, err)
		if err := a.Migrate(t.Context()); err != nil {
			return fence.World{}, err
		}
		return a.World(t.Context())
	}
	plain, err := of(pgfence.Config{})
	require.NoError(t, err)
	require.Empty(t, plain.Name)
	staging, err := of(pgfence.Config{World: "my-staging"})
	require.NoError(t, err)
	require.Equal(t, "my-staging", staging.Name)
	require.NotEqual(t, plain.ID, staging.ID)
	again, err := of(pgfence.Config{World: "my-staging", Table: "my_staging_" + pgfence.DefaultTable})
	require.NoError(t, err)
	require.Equal(t, staging, again)

	_, err = of(pgfence.Config{World: "my-staging", Table: pgfence.DefaultTable})
	var refused *fence.WorldError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, plain, refused.Found)
	require.ErrorContains(t, err, "tilefence_tiles_world")
	_, err = pgfence.New(pool, &pgfence.Config{World: "Staging"})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
