package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// gathering is a scene in which another session has locked a row that the only lane waits for, so that calls
// gather and go together when it is let go.
type gathering struct {
	*scene
	letGo func()
	calls sync.WaitGroup
}

func newGathering(t *testing.T, cfg pgfence.Config, prepare ...string) *gathering {
	t.Helper()
	return newGatheringIn(t, newScene(t), cfg, prepare...)
}

func newGatheringIn(t *testing.T, s *scene, cfg pgfence.Config, prepare ...string) *gathering {
	t.Helper()
	c := &gathering{scene: s}
	for _, sql := range prepare {
		c.exec(t, sql)
	}
	var err error
	c.a, err = pgfence.New(newPool(t, c.proxy.URL), cfg.OneLane())
	require.NoError(t, err)
	c.a.SetWaits(time.Minute, time.Minute)

	const locked fence.TileID = 1
	held, err := c.direct.Claim(t.Context(), claimOf(locked, "a:1"))
	require.NoError(t, err)
	tx, err := c.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+c.table+" WHERE tile = 1 FOR UPDATE")
	require.NoError(t, err)
	var once sync.Once
	c.letGo = func() { once.Do(func() { _ = tx.Rollback(context.Background()) }) }
	t.Cleanup(func() {
		c.letGo()
		c.calls.Wait()
	})
	c.calls.Go(func() {
		p := claimOf(locked, "b:1")
		p.Expected = held.Epoch
		_, _ = c.a.Promote(context.Background(), p)
	})
	c.waitsForLock(t)
	return c
}

type outcome struct {
	claim fence.Claim
	grant fence.Grant
	err   error
}

// claims makes first claims of n tiles under ctx, and returns once they have gathered. Their outcomes follow.
func (c *gathering) claims(
	t *testing.T, ctx context.Context, n int, first fence.TileID,
) func() []outcome { //nolint:revive // t is first in a test
	t.Helper()
	outcomes := make([]outcome, n)
	var these sync.WaitGroup
	before := c.a.Waiting()
	for i := range outcomes {
		o := &outcomes[i]
		o.claim = claimOf(first+fence.TileID(i), fmt.Sprintf("host-%d:1", i))
		these.Go(func() { o.grant, o.err = c.a.Claim(ctx, o.claim) })
	}
	c.calls.Go(these.Wait)
	waittest.Until(t, func() bool { return c.a.Waiting() == before+n }, 10*time.Second, time.Millisecond)
	return func() []outcome {
		these.Wait()
		return outcomes
	}
}

func requireWon(t *testing.T, outcomes []outcome, a fence.Authority) {
	t.Helper()
	for _, o := range outcomes {
		require.NoError(t, o.err)
		require.Equal(t, fence.Grant{Tile: o.claim.Tile, Epoch: 1, Contact: o.claim.Contact, ID: o.claim.ID},
			bare(o.grant))
		row, err := a.Lookup(t.Context(), o.claim.Tile)
		require.NoError(t, err)
		require.Equal(t, o.grant, row)
	}
}

// What gathers goes together: twenty claims are one transaction.
func TestSetIsOneTransaction(t *testing.T) {
	c := newGathering(t, pgfence.Config{})
	outcomes := c.claims(t, t.Context(), 20, 100)
	c.letGo()
	requireWon(t, outcomes(), c.direct)
	var transactions int
	require.NoError(t, c.pool.QueryRow(t.Context(), "SELECT count(DISTINCT xmin::text) FROM "+c.table+
		" WHERE tile >= 100").Scan(&transactions))
	require.Equal(t, 1, transactions)
}

// A set whose write has returned every row is not read again; one with a single loser is.
func TestSetReadsForLosersOnly(t *testing.T) {
	s := newScene(t)
	claims := make([]fence.Claim, 20)
	for i := range claims {
		claims[i] = claimOf(fence.TileID(i+1), "b:1")
		claims[i].Expected = 1
	}
	statements := s.direct.SetStatements(claims)
	for _, write := range []string{"claim_new_set", "claim_released_set", "promote_set", "release_set"} {
		for losers := range 2 {
			t.Run(fmt.Sprintf("%s/%d", write, losers), func(t *testing.T) {
				tx, err := s.pool.Begin(t.Context())
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(context.Background()) }()
				run := func(sql string, args ...any) []string {
					rows, err := tx.Query(t.Context(), sql, args...)
					require.NoError(t, err)
					lines, err := pgx.CollectRows(rows,
						func(r pgx.CollectableRow) (string, error) { return string(r.RawValues()[0]), nil })
					require.NoError(t, err)
					return lines
				}
				for i, c := range claims {
					epoch, contact, id := 1, "a:1", fence.NewClaimID()
					switch {
					case i < losers:
						epoch = 7
					case write == "claim_new_set":
						continue
					case write == "claim_released_set":
						contact = ""
					case write == "release_set":
						id = c.ID
					}
					run("INSERT INTO "+s.table+
						" (tile, epoch, contact, claim, minted_at) VALUES ($1, $2, nullif($3, ''), $4::uuid, '2000-01-01')",
						int64(c.Tile), epoch, contact, id.String())
				}
				run(statements["settings"].SQL, statements["settings"].Args...)
				require.Len(t, run(statements[write].SQL, statements[write].Args...), len(claims)-losers)
				read := statements["read_set"]
				plan := strings.Join(run("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+read.SQL, read.Args...), "\n")
				require.Equal(t, losers == 0, strings.Contains(plan, "never executed"), plan)
			})
		}
	}
}

// SetSize bounds a set, and a shard's calls go by themselves.
func TestSetSizeAndShards(t *testing.T) {
	c := newGathering(t, *pgfence.Config{ShardOf: func(tile fence.TileID) int { return int(tile % 2) }}.With(
		pgfence.Tuning{SetSize: 4}))
	outcomes := c.claims(t, t.Context(), 20, 100)
	c.letGo()
	requireWon(t, outcomes(), c.direct)
	rows, err := c.pool.Query(t.Context(), "SELECT count(*), count(DISTINCT tile % 2) FROM "+c.table+
		" WHERE tile >= 100 GROUP BY xmin::text")
	require.NoError(t, err)
	for rows.Next() {
		var size, shards int
		require.NoError(t, rows.Scan(&size, &shards))
		require.LessOrEqual(t, size, 4)
		require.Equal(t, 1, shards, "a statement on two shards")
	}
	require.NoError(t, rows.Err())
}

// The fate of a set whose connection is lost is found out claim by claim, by the ClaimID in the row.
func TestSetWithAccidents(t *testing.T) {
	fresh := scenes(t)
	for name, test := range map[string]struct {
		accidents []accident
		unknown   bool
	}{
		"answer lost":        {[]accident{{kind: answerLost}}, false},
		"request lost":       {[]accident{{kind: requestLost}}, false},
		"every answer lost":  {[]accident{{kind: answerLost}, {kind: answerLost}}, true},
		"every request lost": {[]accident{{kind: requestLost}, {kind: requestLost}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newGatheringIn(t, fresh(t), pgfence.Config{})
			outcomes := c.claims(t, t.Context(), 5, 100)
			c.proxy.plan(test.accidents...)
			c.letGo()
			if !test.unknown {
				requireWon(t, outcomes(), c.direct)
				require.Zero(t, c.proxy.left())
				return
			}
			for _, o := range outcomes() {
				require.ErrorIs(t, o.err, fence.ErrUnknownOutcome)
				var store *fence.StoreError
				require.ErrorAs(t, o.err, &store)
				require.Equal(t, o.claim.Tile, store.Tile)
				again, err := c.a.Claim(t.Context(), o.claim)
				require.NoError(t, err)
				require.EqualValues(t, 1, again.Epoch)
			}
		})
	}
}

// While an answer was under way, another claimant superseded one member of the set.
func TestSetAnswerLostAndOneSuperseded(t *testing.T) {
	c := newGathering(t, pgfence.Config{})
	outcomes := c.claims(t, t.Context(), 5, 100)
	successor := make(chan fence.Grant, 1)
	c.proxy.plan(accident{kind: answerLost, meanwhile: func() {
		p := claimOf(102, "successor:1")
		p.Expected = 1
		g, _ := c.direct.Promote(context.Background(), p)
		successor <- g
	}})
	c.letGo()
	got := outcomes()
	var lost *fence.LostError
	require.ErrorAs(t, got[2].err, &lost)
	require.Equal(t, <-successor, lost.Current)
	requireWon(t, append(got[:2:2], got[3:]...), c.direct)
}

// One that the server refuses does not take the others with it.
func TestSetWithOneRefused(t *testing.T) {
	c := newGathering(t, pgfence.Config{},
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.tile = 102 THEN RAISE EXCEPTION 'refused'; END IF; RETURN new; END $$",
		"CREATE TRIGGER refuse BEFORE INSERT ON "+pgfence.DefaultTable+" FOR EACH ROW EXECUTE FUNCTION refuse()")
	outcomes := c.claims(t, t.Context(), 5, 100)
	c.letGo()
	got := outcomes()
	require.ErrorIs(t, got[2].err, fence.ErrNotApplied)
	require.ErrorContains(t, got[2].err, "refused")
	requireWon(t, append(got[:2:2], got[3:]...), c.direct)
}

// A call that is cancelled while it gathers is not applied; the other calls are not affected.
func TestSetLeftWhileGathering(t *testing.T) {
	c := newGathering(t, pgfence.Config{})
	staying := c.claims(t, t.Context(), 3, 100)
	ctx, cancel := context.WithCancelCause(t.Context())
	leaving := c.claims(t, ctx, 3, 200)
	also := c.claims(t, t.Context(), 3, 300)
	cancel(fmt.Errorf("no patience"))
	for _, o := range leaving() {
		require.ErrorIs(t, o.err, fence.ErrNotApplied)
		require.ErrorIs(t, o.err, context.Canceled)
		require.ErrorContains(t, o.err, "no patience")
	}
	c.letGo()
	requireWon(t, append(staying(), also()...), c.direct)
	for i := range fence.TileID(3) {
		_, err := c.direct.Lookup(t.Context(), 200+i)
		require.ErrorIs(t, err, fence.ErrNeverOwned)
	}
}

// A call that is cancelled while its set is under way has an unknown outcome and does not disturb the set.
func TestSetLeftUnderWay(t *testing.T) {
	c := newGathering(t, pgfence.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	staying, leaving := c.claims(t, t.Context(), 3, 100), c.claims(t, ctx, 3, 200)
	// The set waits for a session that is inserting one of its tiles.
	tx, err := c.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "INSERT INTO "+c.table+
		" (tile, epoch, contact, claim, minted_at) VALUES (101, 9, 'x:1', gen_random_uuid(), now())")
	require.NoError(t, err)
	c.letGo()
	waittest.Until(t, func() bool { return c.a.Waiting() == 0 }, 10*time.Second, time.Millisecond)
	c.waitsForLock(t)
	cancel()
	for _, o := range leaving() {
		require.ErrorIs(t, o.err, fence.ErrUnknownOutcome)
		require.ErrorIs(t, o.err, context.Canceled)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	requireWon(t, staying(), c.direct)
	for i := range fence.TileID(3) { // they went with the others
		_, err := c.direct.Lookup(t.Context(), 200+i)
		require.NoError(t, err)
	}
}

// When all have left a set that a silent server holds up, its lane is free again.
func TestSetAllLeft(t *testing.T) {
	c := newGathering(t, pgfence.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcomes := c.claims(t, ctx, 3, 100)
	late := newLateCopy()
	c.proxy.plan(accident{kind: silence, late: late})
	c.letGo()
	waittest.Until(t, func() bool { return c.proxy.left() == 0 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	cancel()
	for _, o := range outcomes() {
		require.ErrorIs(t, o.err, fence.ErrUnknownOutcome)
	}
	_, err := c.a.Claim(t.Context(), claimOf(200, "a:1"))
	require.NoError(t, err)
	require.Less(t, time.Since(began), 5*time.Second)
	late.arrive()
}

// A connection without answers delays only its own calls.
func TestLaneStalls(t *testing.T) {
	s := newScene(t)
	a, err := pgfence.New(newPool(t, s.proxy.URL), pgfence.Config{}.OneLane())
	require.NoError(t, err)
	late := newLateCopy()
	s.proxy.plan(accident{kind: silence, late: late})
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan error, 1)
	go func() {
		_, err := a.Claim(ctx, claimOf(100, "a:1"))
		stuck <- err
	}()
	waittest.Until(t, func() bool { return s.proxy.left() == 0 }, 10*time.Second, time.Millisecond)
	for i := range fence.TileID(3) {
		_, err := a.Claim(t.Context(), claimOf(200+i, "a:1"))
		require.NoError(t, err)
	}
	cancel()
	require.ErrorIs(t, <-stuck, fence.ErrUnknownOutcome)
	late.arrive()
}

// Processes that promote and release the same tiles at once, in orders of their own, never deadlock.
func TestSetsDoNotDeadlock(t *testing.T) {
	address := stacktest.PostgresDB(t)
	const processes, tiles = 4, 120
	var authorities []*pgfence.Authority
	for range processes {
		a, err := pgfence.New(newPool(t, address), nil)
		require.NoError(t, err)
		require.NoError(t, a.Migrate(t.Context()))
		authorities = append(authorities, a)
	}
	claims := make([]fence.Claim, tiles)
	for i := range claims {
		claims[i] = claimOf(fence.TileID(i+1), "a:1")
	}
	for _, r := range authorities[0].ClaimMany(t.Context(), claims) {
		require.NoError(t, r.Err)
	}
	var all sync.WaitGroup
	for n, a := range authorities {
		for range 2 {
			order := rand.Perm(tiles)
			all.Go(func() { promoteAll(t, a, order, fmt.Sprintf("host-%d:1", n)) })
		}
	}
	all.Wait()
	pool := newPool(t, address)
	var deadlocks int
	require.NoError(t, pool.QueryRow(t.Context(),
		"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

// promoteAll promotes all tiles at once, releases those it got, and claims those again, a few times over.
func promoteAll(t *testing.T, a *pgfence.Authority, order []int, contact string) {
	for range 4 {
		var calls sync.WaitGroup
		for _, n := range order {
			calls.Go(func() {
				tile := fence.TileID(n + 1)
				row, err := a.Lookup(t.Context(), tile)
				if err != nil {
					t.Error(err)
					return
				}
				c := claimOf(tile, contact)
				c.Expected = row.Epoch
				g, err := a.Promote(t.Context(), c)
				if err == nil {
					err = a.Release(t.Context(), g)
				}
				if err != nil {
					requireLostOnly(t, err)
				}
			})
		}
		calls.Wait()
	}
}

func requireLostOnly(t *testing.T, err error) {
	t.Helper()
	var lost *fence.LostError
	if !errors.As(err, &lost) {
		t.Error(err)
	}
}
