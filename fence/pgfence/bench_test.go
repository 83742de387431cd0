package pgfence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

const (
	benchTiles = 10_000
	benchConns = 32
)

// ground is a table of held tiles, all at epoch 1.
type ground struct {
	pool *pgxpool.Pool
	a    *pgfence.Authority
	raw  string // a conditional update of one row, and nothing else
}

func newGround(b *testing.B) *ground { return newGroundOf(b, benchTiles, nil) }

func newGroundOf(b *testing.B, tiles int, cfg *pgfence.Config) *ground {
	b.Helper()
	pool := newPool(b, stacktest.PostgresDB(b), func(c *pgxpool.Config) {
		c.MinConns, c.MaxConns = benchConns, benchConns
	})
	a, err := pgfence.New(pool, cfg)
	require.NoError(b, err)
	require.NoError(b, a.Migrate(b.Context()))
	_, err = pool.Exec(b.Context(), "INSERT INTO "+pgfence.DefaultTable+` (tile, epoch, contact, claim, minted_at)
		SELECT n, 1, 'a:1', gen_random_uuid(), now() FROM generate_series(1, $1::bigint) n`, tiles)
	require.NoError(b, err)
	_, err = pool.Exec(b.Context(), "VACUUM ANALYZE "+pgfence.DefaultTable)
	require.NoError(b, err)
	return &ground{pool, a, "UPDATE " + pgfence.DefaultTable +
		" SET epoch = epoch + 1, contact = $2, claim = $3::uuid WHERE tile = $1 AND epoch >= 1 RETURNING epoch"}
}

func (g *ground) update(ctx context.Context, tile int64) error {
	var epoch int64
	return g.pool.QueryRow(ctx, g.raw, tile, "b:1", fence.NewClaimID().String()).Scan(&epoch)
}

func benchClaim(tile int64, expected fence.Epoch) fence.Claim {
	return fence.Claim{Tile: fence.TileID(tile), Contact: "b:1", ID: fence.NewClaimID(), Expected: expected}
}

// BenchmarkClaim compares one caller's calls with the bare round trip of a one-row update.
func BenchmarkClaim(b *testing.B) {
	b.Run("raw-update", func(b *testing.B) {
		g := newGround(b)
		for n := int64(0); b.Loop(); n++ {
			require.NoError(b, g.update(b.Context(), n%benchTiles+1))
		}
	})
	b.Run("never-owned", func(b *testing.B) {
		g := newGround(b)
		for n := int64(benchTiles + 1); b.Loop(); n++ {
			_, err := g.a.Claim(b.Context(), benchClaim(n, 0))
			require.NoError(b, err)
		}
	})
	b.Run("lost", func(b *testing.B) {
		g := newGround(b)
		for n := int64(0); b.Loop(); n++ {
			_, err := g.a.Claim(b.Context(), benchClaim(n%benchTiles+1, 0))
			require.ErrorIs(b, err, fence.ErrLost)
		}
	})
	b.Run("promote", func(b *testing.B) {
		g := newGround(b)
		for n := int64(0); b.Loop(); n++ {
			_, err := g.a.Promote(b.Context(), benchClaim(n%benchTiles+1, fence.Epoch(n/benchTiles+1)))
			require.NoError(b, err)
		}
	})
	b.Run("lookup", func(b *testing.B) {
		g := newGround(b)
		for n := int64(0); b.Loop(); n++ {
			_, err := g.a.Lookup(b.Context(), fence.TileID(n%benchTiles+1))
			require.NoError(b, err)
		}
	})
}

// BenchmarkShards deals the tiles to one, two or three PostgreSQL servers by a hash, as a sharded database does, and
// promotes tiles with the same callers. x-one-shard is over a single server in the same run. The servers are on one
// machine and share its processors and its disk: what this can show is that a promotion touches one shard alone and
// that shards do not wait for each other, not what several machines would reach.
func BenchmarkShards(b *testing.B) {
	var one float64
	for _, shards := range []int{1, 2, 3} {
		b.Run(fmt.Sprint(shards), func(b *testing.B) {
			all := make([]*pgfence.Authority, shards)
			for i := range all {
				all[i] = newShard(b)
			}
			callers(b, stormCallers, func(n int64) error {
				tile := n%stormTiles + 1
				a := all[uint64(tile)*0x9e3779b97f4a7c15>>32%uint64(shards)]
				_, err := a.Promote(context.Background(), benchClaim(tile, fence.Epoch(n/stormTiles+1)))
				return err
			})
			rate := float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(rate, "mints/s")
			if shards == 1 {
				one = rate
			}
			if one > 0 { // not left out by -bench
				b.ReportMetric(rate/one, "x-one-shard")
			}
		})
	}
}

// newShard is an authority over a PostgreSQL server of its own, in which every tile is held at epoch 1.
func newShard(b *testing.B) *pgfence.Authority {
	stack := stacktest.Start(b, devstack.Config{Parts: []devstack.Part{devstack.Postgres}})
	pool := newPool(b, stack.PostgresURL, func(c *pgxpool.Config) { c.MinConns, c.MaxConns = benchConns, benchConns })
	a, err := pgfence.New(pool, nil)
	require.NoError(b, err)
	require.NoError(b, a.Migrate(b.Context()))
	_, err = pool.Exec(b.Context(), "INSERT INTO "+pgfence.DefaultTable+` (tile, epoch, contact, claim, minted_at)
		SELECT n, 1, 'a:1', gen_random_uuid(), now() FROM generate_series(1, $1::bigint) n`, stormTiles)
	require.NoError(b, err)
	return a
}
