package pgfence_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

func TestMigrateByManyAtOnce(t *testing.T) {
	address := stacktest.PostgresDB(t)
	var group errgroup.Group
	for _, table := range []string{"one", "two"} {
		for range 6 {
			a, err := pgfence.New(newPool(t, address), &pgfence.Config{Table: table})
			require.NoError(t, err)
			group.Go(func() error { return a.Migrate(t.Context()) })
		}
	}
	require.NoError(t, group.Wait())

	pool := newPool(t, address)
	for _, table := range []string{"one", "two"} {
		var versions int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM tilefence_schema WHERE table_name = $1",
			table).Scan(&versions))
		require.Equal(t, 4, versions)
	}
}

func TestMigrateAgain(t *testing.T) {
	pool := newPool(t, stacktest.PostgresDB(t))
	a, err := pgfence.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, a.Migrate(t.Context()))
	g, err := a.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)

	require.NoError(t, a.Migrate(t.Context()))
	// A later release has been here.
	_, err = pool.Exec(t.Context(), "INSERT INTO tilefence_schema (table_name, version) VALUES ($1, 1000)",
		pgfence.DefaultTable)
	require.NoError(t, err)
	require.NoError(t, a.Migrate(t.Context()))

	got, err := a.Lookup(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, g, got)
}

// A game server's role needs no right to create anything once the table is there.
func TestMigrateWithoutRights(t *testing.T) {
	address := stacktest.PostgresDB(t)
	owner := newPool(t, address)
	role := stacktest.UniqueName(t)
	_, err := owner.Exec(t.Context(), "CREATE SCHEMA game; CREATE ROLE "+role+
		" LOGIN PASSWORD 'game'; GRANT USAGE ON SCHEMA game TO "+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		_, _ = owner.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
	})
	cfg := &pgfence.Config{Table: "game.tiles"}
	a, err := pgfence.New(owner, cfg)
	require.NoError(t, err)

	limited, err := url.Parse(address)
	require.NoError(t, err)
	limited.User = url.UserPassword(role, "game")
	server, err := pgfence.New(newPool(t, limited.String()), cfg)
	require.NoError(t, err)
	require.ErrorContains(t, server.Migrate(t.Context()), "permission denied")

	require.NoError(t, a.Migrate(t.Context()))
	_, err = owner.Exec(t.Context(), "GRANT SELECT ON game.tilefence_schema TO "+role+
		"; GRANT SELECT, INSERT, UPDATE ON game.tiles TO "+role+
		"; GRANT SELECT ON game.tiles_floor, game.tiles_world TO "+role)
	require.NoError(t, err)
	require.NoError(t, server.Migrate(t.Context()))
	_, err = server.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)
}

func TestNotMigrated(t *testing.T) {
	a, err := pgfence.New(newPool(t, stacktest.PostgresDB(t)), nil)
	require.NoError(t, err)
	_, err = a.Claim(t.Context(), claimOf(tile, "a:1"))
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorContains(t, err, "Migrate creates table tilefence_tiles")
}

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
