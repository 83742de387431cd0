package pgfence_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// A claim's insert has seen the floor as it was, waits for the removal of the tile's old row, and goes on
// when that is gone. Its epoch must be above the old row's all the same.
func TestClaimWaitsForRetirement(t *testing.T) {
	single := func(a *pgfence.Authority, c fence.Claim) (fence.Grant, error) {
		return a.Claim(context.Background(), c)
	}
	inSet := func(a *pgfence.Authority, c fence.Claim) (fence.Grant, error) {
		r := a.ClaimMany(context.Background(), []fence.Claim{claimOf(1, "a:1"), c, claimOf(2, "a:1")})[1]
		return r.Grant, r.Err
	}
	for name, call := range map[string]func(*pgfence.Authority, fence.Claim) (fence.Grant, error){"alone": single,
		"in a set": inSet} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			old := claimOf(tile, "a:1")
			old.Floor = 6
			g, err := s.direct.Claim(t.Context(), old)
			require.NoError(t, err)
			require.NoError(t, s.direct.Release(t.Context(), g))

			remover, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = remover.Rollback(context.Background()) }()
			tag, err := remover.Exec(t.Context(), s.direct.Statements()["retire"], int64(tile), int64(7), int64(0))
			require.NoError(t, err)
			require.EqualValues(t, 1, tag.RowsAffected())

			answered := make(chan outcome, 1)
			c := claimOf(tile, "b:1")
			go func() {
				g, err := call(s.direct, c)
				answered <- outcome{c, g, err}
			}()
			s.waitsForLock(t)
			// Worse than Retire, which has the floor raised before: the claim's statement began under the old one.
			_, err = s.pool.Exec(t.Context(), "UPDATE "+s.table+"_floor SET epoch = 7")
			require.NoError(t, err)
			require.NoError(t, remover.Commit(t.Context()))
			got := <-answered
			require.NoError(t, got.err)
			require.EqualValues(t, 8, got.grant.Epoch)
			row, err := s.direct.Lookup(t.Context(), tile)
			require.NoError(t, err)
			require.Equal(t, got.grant, row)
		})
	}
}

// waitsForLock waits until a session waits for a lock in this database.
func (s *scene) waitsForLock(t *testing.T) {
	t.Helper()
	waittest.Until(t, func() bool {
		var n int
		err := s.pool.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").
			Scan(&n)
		return err == nil && n == 1
	}, 10*time.Second, time.Millisecond)
}

// A row that a claim under way has locked is left for the next call, and does not delay the removal of others.
func TestRetirementLeavesLockedRow(t *testing.T) {
	s := newScene(t)
	for _, id := range []fence.TileID{tile, tile + 1, tile + 2} {
		g, err := s.direct.Claim(t.Context(), claimOf(id, "a:1"))
		require.NoError(t, err)
		require.NoError(t, s.direct.Release(t.Context(), g))
	}
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	c := claimOf(tile, "b:1")
	_, err = tx.Exec(t.Context(), s.direct.Statements()["claim_released"], int64(tile), int64(0), c.Contact,
		c.ID.String(), int64(1), "0")
	require.NoError(t, err)

	n, err := s.direct.Retire(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, tx.Commit(t.Context()))
	n, err = s.direct.Retire(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	require.Zero(t, n)
	row, err := s.direct.Lookup(t.Context(), tile)
	require.NoError(t, err)
	require.EqualValues(t, 2, row.Epoch)
	require.True(t, row.Held())
}

// Where it cannot be known whether a tile was retired, it is not claimed.
func TestClaimFailsClosed(t *testing.T) {
	single := func(a *pgfence.Authority) error {
		_, err := a.Claim(t.Context(), claimOf(tile, "a:1"))
		return err
	}
	inSet := func(a *pgfence.Authority) error {
		results := a.ClaimMany(t.Context(), []fence.Claim{claimOf(tile, "a:1"), claimOf(tile+1, "a:1")})
		require.Error(t, results[1].Err)
		return results[0].Err
	}
	for name, call := range map[string]func(*pgfence.Authority) error{"alone": single, "in a set": inSet} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			strict, err := pgfence.New(newPool(t, s.pool.Config().ConnString(), func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
			}), nil)
			require.NoError(t, err)
			require.ErrorContains(t, call(strict), "read committed")
			require.Zero(t, s.row(t))

			s.exec(t, "DELETE FROM "+s.table+"_floor")
			err = call(s.direct)
			require.ErrorIs(t, err, fence.ErrNotApplied)
			require.ErrorContains(t, err, "tilefence_tiles_floor")
			require.Zero(t, s.row(t))
			_, err = s.direct.Retire(t.Context(), 0, 1)
			require.NoError(t, err, "there is nothing to retire")
		})
	}
}

// The database is restored from a copy that has forgotten epochs, which the coordination store or a
// checkpoint has not: Floor keeps every one of them from being minted again.
func TestRestoredDatabase(t *testing.T) {
	s := newScene(t)
	g, err := s.direct.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)
	promote := func(g fence.Grant, above fence.Epoch) fence.Grant {
		t.Helper()
		c := claimOf(tile, "b:1")
		c.Expected, c.Floor = g.Epoch, above
		g, err := s.direct.Promote(t.Context(), c)
		require.NoError(t, err)
		return g
	}
	seen := map[fence.Epoch]bool{g.Epoch: true}
	s.exec(t, "CREATE TABLE backup AS TABLE "+s.table)
	for range 3 {
		g = promote(g, 0)
		seen[g.Epoch] = true
	}
	newTileWithFloor := func(floor fence.Epoch) fence.Grant {
		t.Helper()
		c := claimOf(tile+1, "b:1")
		c.Floor = floor
		g, err := s.direct.Claim(t.Context(), c)
		require.NoError(t, err)
		return g
	}
	first := newTileWithFloor(41)

	s.exec(t, "TRUNCATE "+s.table)
	s.exec(t, "INSERT INTO "+s.table+" TABLE backup")
	restored, err := s.direct.Lookup(t.Context(), tile)
	require.NoError(t, err)
	require.EqualValues(t, 1, restored.Epoch)
	_, err = s.direct.Lookup(t.Context(), tile+1)
	require.ErrorIs(t, err, fence.ErrNeverOwned)

	next := promote(restored, g.Epoch)
	require.NotContains(t, seen, next.Epoch)
	require.Equal(t, g.Epoch+1, next.Epoch)
	require.Equal(t, first.Epoch+1, newTileWithFloor(first.Epoch).Epoch)
	// What the living owner of before still asks for is refused.
	err = s.direct.Release(t.Context(), g)
	require.ErrorIs(t, err, fence.ErrLost)
}

// A table of an earlier release keeps its rows and its epochs.
func TestMigrateFromFirstRelease(t *testing.T) {
	pool := newPool(t, stacktest.PostgresDB(t))
	a, err := pgfence.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, a.MigrateTo(t.Context(), 1))
	_, err = pool.Exec(t.Context(), "INSERT INTO "+pgfence.DefaultTable+` (tile, epoch, contact, claim, minted_at)
		VALUES (1, 5, 'a:1', gen_random_uuid(), now() - interval '1 day'), (2, 3, NULL, gen_random_uuid(), now() - interval '1 day')`)
	require.NoError(t, err)
	_, err = a.Claim(t.Context(), claimOf(3, "a:1"))
	require.ErrorIs(t, err, fence.ErrNotApplied, "an unknown column")

	require.NoError(t, a.Migrate(t.Context()))
	grants, err := a.List(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, grants, 2)
	require.Equal(t, "a:1", grants[0].Contact)
	require.EqualValues(t, 5, grants[0].Mints)
	require.WithinDuration(t, time.Now().Add(-24*time.Hour), grants[0].Minted, time.Hour)
	require.False(t, grants[1].Held())

	n, err := a.Retire(t.Context(), time.Hour, 10)
	require.NoError(t, err)
	require.Zero(t, n, "counts as released at the migration")
	n, err = a.Retire(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	g, err := a.Claim(t.Context(), claimOf(2, "b:1"))
	require.NoError(t, err)
	require.EqualValues(t, 4, g.Epoch)
}

// Thousands of rows go in one call; what is held stays.
func TestRetireMany(t *testing.T) {
	pool := newPool(t, stacktest.PostgresDB(t))
	a, err := pgfence.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, a.Migrate(t.Context()))
	_, err = pool.Exec(t.Context(), "INSERT INTO "+pgfence.DefaultTable+
		` (tile, epoch, contact, claim, minted_at, released_at)
		SELECT n, n, CASE WHEN n % 5 = 0 THEN 'a:1' END, gen_random_uuid(), now(), CASE WHEN n % 5 > 0 THEN now() END FROM generate_series(1, 3000) n`)
	require.NoError(t, err)
	n, err := a.Retire(t.Context(), 0, fence.MaxList)
	require.NoError(t, err)
	require.Equal(t, 2400, n)
	rows, err := pool.Query(t.Context(), "SELECT count(*) FROM "+pgfence.DefaultTable+" WHERE contact IS NOT NULL")
	require.NoError(t, err)
	kept, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	require.NoError(t, err)
	require.Equal(t, 600, kept)
	g, err := a.Claim(t.Context(), claimOf(1, "b:1"))
	require.NoError(t, err)
	require.EqualValues(t, 3000, g.Epoch, "above 2999, the highest that was retired")
}

// The floor is for rows that a claim inserts. A retry, by a process that has not met the floor yet, leaves the
// row of the first attempt as it is, though others were retired above it meanwhile.
func TestRetryIsNotRaised(t *testing.T) {
	s := newScene(t)
	claims := []fence.Claim{claimOf(tile, "a:1"), claimOf(tile+1, "a:1")}
	first := s.direct.ClaimMany(t.Context(), claims)
	high := claimOf(tile+2, "a:1")
	high.Floor = 6
	g, err := s.direct.Claim(t.Context(), high)
	require.NoError(t, err)
	require.NoError(t, s.direct.Release(t.Context(), g))
	n, err := s.direct.Retire(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)

	require.Equal(t, first, s.a.ClaimMany(t.Context(), claims))
	g, err = s.a.Claim(t.Context(), claims[0])
	require.NoError(t, err)
	require.Equal(t, first[0].Grant, g)
	// One that has no row starts above, next to one that has.
	fresh := claimOf(tile+3, "a:1")
	results := s.a.ClaimMany(t.Context(), []fence.Claim{claims[0], fresh})
	require.Equal(t, first[0], results[0])
	require.NoError(t, results[1].Err)
	require.EqualValues(t, 8, results[1].Grant.Epoch)
}
