package pgfence_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

const partitions = 4

// partitioned is a table of tiles that is partitioned by hash of the tile, which stands for shards.
type partitioned struct {
	pool  *pgxpool.Pool
	a     *pgfence.Authority
	shard map[fence.TileID]int // of some tiles: fifty on each
	tiles [partitions][]fence.TileID
}

func newPartitioned(t *testing.T) *partitioned {
	t.Helper()
	p := &partitioned{pool: newPool(t, stacktest.PostgresDB(t)), shard: map[fence.TileID]int{}}
	var err error
	p.a, err = pgfence.New(p.pool, &pgfence.Config{ShardOf: func(tile fence.TileID) int { return p.shard[tile] }})
	require.NoError(t, err)
	require.NoError(t, p.a.Migrate(t.Context()))
	p.exec(t, "ALTER TABLE "+pgfence.DefaultTable+" RENAME TO plain")
	p.exec(t, "CREATE TABLE "+pgfence.DefaultTable+
		" (LIKE plain INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (tile)) PARTITION BY HASH (tile)")
	for i := range partitions {
		p.exec(t, fmt.Sprintf("CREATE TABLE shard_%d PARTITION OF %s FOR VALUES WITH (MODULUS %d, REMAINDER %d)", i,
			pgfence.DefaultTable, partitions, i))
	}
	for tile, missing := fence.TileID(1), partitions; missing > 0; tile++ {
		for i := range partitions {
			var here bool
			require.NoError(t,
				p.pool.QueryRow(t.Context(), "SELECT satisfies_hash_partition($1::regclass, $2, $3, $4::bigint)",
					pgfence.DefaultTable, partitions, i, int64(tile)).Scan(&here))
			if here && len(p.tiles[i]) < 50 {
				p.shard[tile] = i
				if p.tiles[i] = append(p.tiles[i], tile); len(p.tiles[i]) == 50 {
					missing--
				}
			}
		}
	}
	return p
}

func (p *partitioned) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := p.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// planned are the partitions in the plan of a statement with these arguments.
func planned(t *testing.T, tx pgx.Tx, sql string, args []any) map[string]bool {
	t.Helper()
	var text []byte
	require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+sql, args...).Scan(&text))
	var plan any
	require.NoError(t, json.Unmarshal(text, &plan))
	found := map[string]bool{}
	var visit func(any)
	visit = func(node any) {
		switch node := node.(type) {
		case []any:
			for _, n := range node {
				visit(n)
			}
		case map[string]any:
			if name, ok := node["Relation Name"].(string); ok && name != pgfence.DefaultTable &&
				name != pgfence.DefaultTable+"_floor" {
				found[name] = true
			}
			for _, n := range node {
				visit(n)
			}
		}
	}
	visit(plan)
	return found
}

// locked are the partitions that a session has locked, as it does with those it has touched, whether or not
// it found a row there.
func locked(t *testing.T, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, pid uint32) map[string]bool {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT DISTINCT relname::text FROM pg_locks JOIN pg_class c ON c.oid = relation
		WHERE pid = $1 AND relname LIKE 'shard\__' AND relkind = 'r'`, int64(pid))
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	found := map[string]bool{}
	for _, n := range names {
		found[n] = true
	}
	return found
}

// Each statement touches the partition of its tile, by its plan and by the locks it takes, and no other.
func TestEachStatementTouchesOnePartition(t *testing.T) {
	p := newPartitioned(t)
	for shard := range partitions {
		tile := int64(p.tiles[shard][0])
		id := fence.NewClaimID().String()
		statements := map[string]pgfence.SetStatement{}
		for name, args := range map[string][]any{
			"claim_new": {tile, int64(0), "a:1", id, "1"}, "raise": {tile, id},
			"claim_released": {tile, int64(0), "a:1", id, int64(1), "1"},
			"promote":        {tile, int64(0), "a:1", id, int64(1), "1"},
			"release":        {tile, int64(1), id, "1"}, "read": {tile},
			"retire": {tile, int64(1), int64(0)},
		} {
			statements[name] = pgfence.SetStatement{SQL: p.a.Statements()[name], Args: args}
		}
		require.Len(t, statements, len(p.a.Statements()), "a statement is missing here")
		var claims []fence.Claim
		for _, tile := range p.tiles[shard] {
			c := claimOf(tile, "a:1")
			c.Expected = 1
			claims = append(claims, c)
		}
		sets := p.a.SetStatements(claims)
		settings := sets["settings"]
		delete(sets, "settings")
		require.Len(t, sets, 6)
		for name, s := range sets {
			statements[name] = s
		}
		want := map[string]bool{fmt.Sprintf("shard_%d", shard): true}
		for name, s := range statements {
			t.Run(fmt.Sprintf("%s/%d", name, shard), func(t *testing.T) {
				tx, err := p.pool.Begin(t.Context())
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(context.Background()) }()
				if _, set := sets[name]; set {
					_, err = tx.Exec(t.Context(), settings.SQL, settings.Args...)
					require.NoError(t, err)
				}
				_, err = tx.Exec(t.Context(), s.SQL, s.Args...)
				require.NoError(t, err)
				touched := locked(t, tx, tx.Conn().PgConn().PID())
				require.Equal(t, want, touched, "locked")
				if name == "claim_new" || name == "claim_new_set" {
					return // the plan of an insert names the table, and routes each row
				}
				require.Equal(t, want, planned(t, tx, s.SQL, s.Args), "planned")
			})
		}
	}
}

// Sets that have gone over the same connection for long still touch one partition: their plans do not turn
// generic. Seen from outside, while one waits for a row.
func TestSetsTouchOnePartitionForGood(t *testing.T) {
	p := newPartitioned(t)
	claims := func(expected fence.Epoch) []fence.Claim {
		var all []fence.Claim
		for tile := range p.shard {
			c := claimOf(tile, "a:1")
			c.Expected = expected
			all = append(all, c)
		}
		return all
	}
	one := newPool(t, p.pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	a, err := pgfence.New(one, pgfence.Config{ShardOf: func(tile fence.TileID) int { return p.shard[tile] }}.OneLane())
	require.NoError(t, err)
	a.SetWaits(time.Minute, time.Minute)
	for round := range fence.Epoch(10) {
		var releases sync.WaitGroup
		for _, r := range a.ClaimMany(t.Context(), claims(round)) {
			require.NoError(t, r.Err)
			releases.Go(func() {
				if err := a.Release(t.Context(), r.Grant); err != nil {
					t.Error(err)
				}
			})
		}
		releases.Wait()
	}
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM shard_2 FOR UPDATE")
	require.NoError(t, err)
	done := make(chan []fence.ClaimResult, 1)
	go func() { done <- a.ClaimMany(context.Background(), claims(10)) }()
	s := &scene{pool: p.pool}
	s.waitsForLock(t)
	var pid uint32
	require.NoError(t, p.pool.QueryRow(t.Context(),
		"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&pid))
	require.Equal(t, map[string]bool{"shard_2": true}, locked(t, p.pool, pid))
	require.NoError(t, tx.Rollback(t.Context()))
	for _, r := range <-done {
		require.NoError(t, r.Err)
		require.EqualValues(t, 11, r.Grant.Epoch)
	}
}
