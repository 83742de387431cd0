package pgfence_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

const tile fence.TileID = 0x85283473fffffff

func TestMain(m *testing.M) {
	// Each call is a round trip, and the model plays in four tests here. An authority in memory plays it more often.
	_ = flag.Set("rapid.checks", "25")
	goleak.VerifyTestMain(m)
}

// newPool connects to a database. More connections than processors, so that calls meet in the server.
func newPool(t testing.TB, url string, edit ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 16
	for _, f := range edit {
		f(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func newAuthority(t testing.TB, pool *pgxpool.Pool) *pgfence.Authority {
	t.Helper()
	a, err := pgfence.New(pool, &pgfence.Config{Table: stacktest.UniqueName(t)})
	require.NoError(t, err)
	require.NoError(t, a.Migrate(t.Context()))
	return a
}

func claimOf(tile fence.TileID, contact string) fence.Claim {
	return fence.Claim{Tile: tile, Contact: contact, ID: fence.NewClaimID()}
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	pool := newPool(t, stacktest.PostgresDB(t))
	fencetest.RunAuthority(t, func(t *testing.T) fence.Authority { return newAuthority(t, pool) })
}

// Batches go to the server in three ways, which fail in three ways: pipelined (the default, above), as
// unprepared statements, and as text.
func TestAuthorityInOtherQueryModes(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite twice more")
	}
	t.Parallel()
	url := stacktest.PostgresDB(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			fencetest.RunAuthority(t, func(t *testing.T) fence.Authority { return newAuthority(t, pool) })
		})
	}
}

func TestNew(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none") // connects to nothing until used
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	_, err = pgfence.New(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = pgfence.New(pool, nil)
	require.NoError(t, err)
	for _, good := range []string{"", "tiles", "_t1", "game.tiles"} {
		_, err := pgfence.New(pool, &pgfence.Config{Table: good})
		require.NoError(t, err, good)
	}
	long := "a123456789012345678901234567890123456789012345678901234567890123" // 64 bytes
	for _, bad := range []string{"Tiles", "1t", "a b", "a;b", `a"b`, "a.b.c", ".a", "a.", "ä", long, long + ".a",
		"a\n"} {
		_, err := pgfence.New(pool, &pgfence.Config{Table: bad})
		require.ErrorIs(t, err, fence.ErrInvalidArgument, bad)
	}
}

// The time of the mint is the database's.
func TestMintedAt(t *testing.T) {
	pool := newPool(t, stacktest.PostgresDB(t))
	a, err := pgfence.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, a.Migrate(t.Context()))
	mintedAt := func() (at, now time.Time) {
		query := "SELECT minted_at, now() FROM " + pgfence.DefaultTable + " WHERE tile = $1"
		require.NoError(t, pool.QueryRow(t.Context(), query, int64(tile)).Scan(&at, &now))
		return at, now
	}
	g, err := a.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)
	first, now := mintedAt()
	require.WithinDuration(t, now, first, time.Minute)

	require.NoError(t, a.Release(t.Context(), g))
	same, _ := mintedAt()
	require.Equal(t, first, same, "a release mints nothing")

	again := claimOf(tile, "a:1")
	again.Expected = g.Epoch
	g, err = a.Claim(t.Context(), again)
	require.NoError(t, err)
	second, _ := mintedAt()
	require.True(t, second.Equal(g.Minted))
	require.True(t, second.After(first))
}

// Each statement must be found by its primary key alone, or a sharded table would ask every shard.
func TestStatementsUseThePrimaryKey(t *testing.T) {
	pool := newPool(t, stacktest.PostgresDB(t))
	a := newAuthority(t, pool)
	require.Len(t, a.Statements(), 7)
	for name, sql := range a.Statements() {
		t.Run(name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(t.Context(),
				"SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan")
			require.NoError(t, err)
			prepared, err := tx.Prepare(t.Context(), "probe_"+name, sql)
			require.NoError(t, err)
			args := []string{"1", "1", "'a:1'", "'" + fence.NewClaimID().String() + "'", "1", "1"}
			args = args[:len(prepared.ParamOIDs)]
			switch name {
			case "release":
				args[2] = "'" + fence.NewClaimID().String() + "'"
			case "raise":
				args[1] = "'" + fence.NewClaimID().String() + "'"
			case "retire":
				args[2] = "1"
			}
			rows, err := tx.Query(t.Context(),
				fmt.Sprintf("EXPLAIN (COSTS OFF) EXECUTE probe_%s(%s)", name, strings.Join(args, ", ")),
				pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			if name == "claim_new" {
				require.Contains(t, fmt.Sprint(plan), "Conflict Arbiter Indexes")
				return
			}
			require.Contains(t, fmt.Sprint(plan), "Index Cond: (tile = $1)")
		})
	}
}

// Under a stricter isolation the loser may have to ask again, but every answer is correct.
func TestStricterIsolation(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite once more")
	}
	t.Parallel()
	pool := newPool(t, stacktest.PostgresDB(t), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	})
	readCommitted := newPool(t, pool.Config().ConnString())
	fencetest.RunAuthority(t, func(t *testing.T) fence.Authority {
		table := stacktest.UniqueName(t)
		strict, err := pgfence.New(pool, &pgfence.Config{Table: table})
		require.NoError(t, err)
		require.NoError(t, strict.Migrate(t.Context()))
		first, err := pgfence.New(readCommitted, &pgfence.Config{Table: table})
		require.NoError(t, err)
		return retryRefused{t, strict, first}
	})
}

// retryRefused is a caller that asks again when the server has refused, and makes first claims where
// transactions are read committed.
type retryRefused struct {
	t *testing.T
	*pgfence.Authority
	first *pgfence.Authority
}

func (a retryRefused) Claim(ctx context.Context, c fence.Claim) (g fence.Grant, err error) {
	if c.Expected == 0 {
		return a.first.Claim(ctx, c)
	}
	a.retry(func() error { g, err = a.Authority.Claim(ctx, c); return err })
	return g, err
}

func (a retryRefused) Promote(ctx context.Context, c fence.Claim) (g fence.Grant, err error) {
	a.retry(func() error { g, err = a.Authority.Promote(ctx, c); return err })
	return g, err
}

func (a retryRefused) Lookup(ctx context.Context, tile fence.TileID) (g fence.Grant, err error) {
	a.retry(func() error { g, err = a.Authority.Lookup(ctx, tile); return err })
	return g, err
}

func (a retryRefused) Release(ctx context.Context, g fence.Grant) (err error) {
	a.retry(func() error { err = a.Authority.Release(ctx, g); return err })
	return err
}

func (a retryRefused) ClaimMany(ctx context.Context, claims []fence.Claim) []fence.ClaimResult {
	results := make([]fence.ClaimResult, len(claims))
	for i, c := range claims {
		results[i].Grant, results[i].Err = a.Claim(ctx, c)
	}
	return results
}

func (a retryRefused) Retire(ctx context.Context, releasedFor time.Duration, limit int) (n int, err error) {
	return a.first.Retire(ctx, releasedFor, limit)
}

// retry repeats a call while it is refused for a serialization failure.
func (a retryRefused) retry(call func() error) {
	for {
		err := call()
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40001" {
			return
		}
		if !assert.ErrorIs(a.t, err, fence.ErrNotApplied) {
			return
		}
	}
}
