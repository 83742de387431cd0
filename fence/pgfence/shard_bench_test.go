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
