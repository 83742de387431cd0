package pgfence

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
	"github.com/tilefence/tilefence/internal/setting"
)

// DefaultTable is the table of tiles when Config names none.
const DefaultTable = "tilefence_tiles"

// Config holds the optional settings of an Authority.
type Config struct {
	// World names the world that the table mints epochs for, see fence.World. Default: the one without a name.
	World string

	// Table is the table of tiles: a name of lower-case letters, digits and underscores, of at most 57
	// bytes, not starting with a digit, with a schema of the same form and a dot before it if wanted.
	// Without a schema the connection's search_path decides. Empty means DefaultTable, behind the name of the world
	// and an underscore if it has one, with underscores for its hyphens: my_game_tilefence_tiles.
	Table string

	// ShardOf returns the number of a tile's shard if the table is partitioned or distributed. Calls that go
	// together are then of one shard. Nil means that there is one shard.
	ShardOf func(fence.TileID) int

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	SetSize int // the most calls that go together, at most fence.MaxList

	// Lanes is how many transactions at once carry claims, promotions and releases, and how many carry lookups; calls
	// made meanwhile gather and go together in the next. Each takes a connection from the pool. One lane carries as
	// many calls a second; with four, a set that waits for locked rows or for a silent connection delays few others.
	Lanes int
}

func (cfg *Config) withDefaults() (Config, error) {
	c := setting.Of(cfg)
	if err := (fence.World{Name: c.World}).Validate(); err != nil {
		return c, err
	}
	if c.Table == "" && c.World != "" {
		c.Table = strings.ReplaceAll(c.World, "-", "_") + "_" + DefaultTable
	}
	c.Table = cmp.Or(c.Table, DefaultTable)
	c.tuning.SetSize, c.tuning.Lanes = cmp.Or(c.tuning.SetSize, 500), cmp.Or(c.tuning.Lanes, 4)
	return c, nil
}

// Authority mints epochs in a PostgreSQL table: a fence.Authority, with the failures that the package comment names.
// Create one with New. It is safe for concurrent use.
type Authority struct {
	fence.Authority
	own *authority
}

type authority struct {
	methods

	pool     *pgxpool.Pool
	table    tableName
	world    string
	sql      statements
	planMode string // of transactions with several tiles
	mints    *lanes
	lookups  *lanes
	servers  servers
	poolers  poolers

	lockWait, asideWait time.Duration
	asides              chan struct{} // a token for each connection that waits for a locked row

	floor atomic.Int64 // the floor in the table when last read, or lower
}

// methods are Claim, Promote, Lookup and Release.
type methods = verdict.Authority

// New returns an authority on the pool's database, whose table Migrate creates. It does no I/O. A nil
// cfg means the defaults. The error is a *fence.ArgumentError.
func New(pool *pgxpool.Pool, cfg *Config) (*Authority, error) {
	if pool == nil {
		return nil, &fence.ArgumentError{Field: "pool", Value: nil, Want: "a *pgxpool.Pool"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	table, err := parseTable(c.Table)
	if err != nil {
		return nil, err
	}
	a := &authority{pool: pool, table: table, world: c.World, sql: loadStatements(table),
		planMode: "force_generic_plan",
		lockWait: lockWait, asideWait: asideWait, asides: make(chan struct{}, max(1, c.tuning.Lanes/4))}
	if c.ShardOf != nil {
		// A plan for these tiles omits partitions that hold none of them.
		a.planMode = "force_custom_plan"
	}
	a.Present = a.present
	a.mints = newLanes(c.tuning.Lanes, c.tuning.SetSize, c.ShardOf, a.runSet)
	a.lookups = newLanes(c.tuning.Lanes, c.tuning.SetSize, c.ShardOf, a.runSet)
	return &Authority{a, a}, nil
}

// ClaimMany makes claims in sets of up to 500, each of one shard and in one round trip; see
// fence.Authority, and the package comment for failures.
func (a *authority) ClaimMany(ctx context.Context, claims []fence.Claim) []fence.ClaimResult {
	results := make([]fence.ClaimResult, len(claims))
	var open []int // indexes of claims without an answer
	for i := range claims {
		if results[i].Err = claims[i].Validate(); results[i].Err == nil {
			open = append(open, i)
		}
	}
	for len(open) > 0 {
		calls := make([]verdict.Call, len(open))
		for n, i := range open {
			calls[n] = verdict.Claiming(&claims[i])
		}
		var again []int
		a.presentMany(ctx, calls, func(n int, row fence.Grant, err error) {
			i := open[n]
			r := &results[i]
			if r.Err = err; err == nil {
				r.Grant, r.Err = verdict.JudgeClaim(&claims[i], row)
			}
			if errors.Is(r.Err, verdict.ErrAgain) {
				again = append(again, i)
			}
		})
		open = again
	}
	return results
}
