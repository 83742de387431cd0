package pgfence_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// scene is a tile, an authority that reaches the server through a proxy, and another that reaches it
// directly.
type scene struct {
	proxy  *proxy
	a      *pgfence.Authority // through the proxy
	direct *pgfence.Authority
	pool   *pgxpool.Pool // of direct
	table  string
}

func newScene(t *testing.T, edit ...func(*pgxpool.Config)) *scene {
	t.Helper()
	return newSceneIn(t, stacktest.PostgresDB(t), edit...)
}

// scenes makes scenes one after the other in one database, since making a database takes half a second. Each has an
// empty table.
func scenes(t *testing.T) func(t *testing.T, edit ...func(*pgxpool.Config)) *scene {
	t.Helper()
	address := stacktest.PostgresDB(t)
	return func(t *testing.T, edit ...func(*pgxpool.Config)) *scene {
		t.Helper()
		s := newSceneIn(t, address, edit...)
		s.exec(t, "TRUNCATE "+s.table)
		return s
	}
}

func newSceneIn(t *testing.T, address string, edit ...func(*pgxpool.Config)) *scene {
	t.Helper()
	s := &scene{proxy: newProxy(t, address), pool: newPool(t, address), table: pgfence.DefaultTable}
	var err error
	s.direct, err = pgfence.New(s.pool, nil)
	require.NoError(t, err)
	require.NoError(t, s.direct.Migrate(t.Context()))
	s.a, err = pgfence.New(newPool(t, s.proxy.URL, edit...), nil)
	require.NoError(t, err)
	return s
}

// bare is a grant without the time and the count, which a test cannot foresee.
func bare(g fence.Grant) fence.Grant {
	g.Minted, g.Mints = time.Time{}, 0
	return g
}

func (s *scene) row(t *testing.T) fence.Grant {
	t.Helper()
	g, err := s.direct.Lookup(t.Context(), tile)
	if err != nil {
		require.ErrorIs(t, err, fence.ErrNeverOwned)
	}
	return bare(g)
}

func (s *scene) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := s.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// step is one call, ready to be made, on a tile that is in the right state for it.
type step struct {
	call   func(context.Context) (fence.Grant, error)
	before fence.Grant // the row
	after  fence.Grant // the row when the call has taken effect
}

// prepare returns a call of one kind.
func (s *scene) prepare(t *testing.T, op string) step {
	t.Helper()
	first := claimOf(tile, "first:1")
	if op == "claim" {
		return step{
			call: func(ctx context.Context) (fence.Grant, error) {
				g, err := s.a.Claim(ctx, first)
				return bare(g), err
			},
			after: fence.Grant{Tile: tile, Epoch: 1, Contact: first.Contact, ID: first.ID},
		}
	}
	held, err := s.direct.Claim(t.Context(), first)
	require.NoError(t, err)
	if op == "promote" {
		c := claimOf(tile, "second:1")
		c.Expected = held.Epoch
		return step{
			call: func(ctx context.Context) (fence.Grant, error) {
				g, err := s.a.Promote(ctx, c)
				return bare(g), err
			},
			before: bare(held),
			after:  fence.Grant{Tile: tile, Epoch: 2, Contact: c.Contact, ID: c.ID},
		}
	}
	held = bare(held)
	after := held
	after.Contact = ""
	return step{
		call:   func(ctx context.Context) (fence.Grant, error) { return after, s.a.Release(ctx, held) },
		before: held,
		after:  after,
	}
}

// takeOver makes a successor own the tile, as others would after step's call has taken effect.
func (s *scene) takeOver(ctx context.Context, step step) (fence.Grant, error) {
	c := claimOf(tile, "successor:1")
	c.Expected = step.after.Epoch
	return s.direct.Promote(ctx, c)
}

// eachCall runs a test for each kind of call that writes, with the connection warm.
func eachCall(t *testing.T, test func(t *testing.T, s *scene, step step)) {
	fresh := scenes(t)
	for _, op := range []string{"claim", "promote", "release"} {
		t.Run(op, func(t *testing.T) {
			s := fresh(t)
			_, err := s.a.Lookup(t.Context(), tile)
			require.ErrorIs(t, err, fence.ErrNeverOwned)
			test(t, s, s.prepare(t, op))
			require.Zero(t, s.proxy.left(), "an accident did not happen")
		})
	}
}

// TestConnectionLost: one lost request or answer is not noticed. After two the outcome is unknown, and the same call
// again has the answer of the first.
func TestConnectionLost(t *testing.T) {
	for name, test := range map[string]struct {
		kind accidentKind
		all  bool // the second attempt is lost, too
	}{
		"answer": {answerLost, false}, "request": {requestLost, false},
		"every answer": {answerLost, true}, "every request": {requestLost, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachCall(t, func(t *testing.T, s *scene, step step) {
				lost := accident{kind: test.kind, meanwhile: func() {
					got, err := s.direct.Lookup(context.Background(), tile)
					if err != nil || bare(got) != step.after {
						t.Errorf("the call has not taken effect: %+v, %v", got, err)
					}
				}}
				s.proxy.plan(lost)
				if test.all {
					s.proxy.plan(lost, lost)
					_, err := step.call(t.Context())
					require.ErrorIs(t, err, fence.ErrUnknownOutcome)
					left := step.after
					if test.kind == requestLost {
						left = step.before
					}
					require.Equal(t, left, s.row(t))
				}
				g, err := step.call(t.Context())
				require.NoError(t, err)
				require.Equal(t, step.after, g)
				require.Equal(t, step.after, s.row(t))
			})
		})
	}
}

// The answer was lost, and then no server is left to ask. That the second copy was certainly not applied
// says nothing of the first.
func TestAnswerLostAndServerGone(t *testing.T) {
	eachCall(t, func(t *testing.T, s *scene, step step) {
		s.proxy.plan(accident{kind: answerLost, meanwhile: func() { _ = s.proxy.listener.Close() }})
		_, err := step.call(t.Context())
		require.ErrorIs(t, err, fence.ErrUnknownOutcome)
		require.ErrorContains(t, err, "connection refused")
		require.Equal(t, step.after, s.row(t))
	})
}

// The call took effect and was then superseded, all before the caller could hear of it.
func TestAnswerLostAndSuperseded(t *testing.T) {
	eachCall(t, func(t *testing.T, s *scene, step step) {
		type result struct {
			grant fence.Grant
			err   error
		}
		overtaken := make(chan result, 1)
		s.proxy.plan(accident{kind: answerLost, meanwhile: func() {
			g, err := s.takeOver(context.Background(), step)
			overtaken <- result{g, err}
		}})
		_, err := step.call(t.Context())
		successor := <-overtaken
		require.NoError(t, successor.err)
		var lost *fence.LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, successor.grant, lost.Current)
		require.Equal(t, bare(successor.grant), s.row(t))
	})
}

// A copy of the request that was under way for long does nothing when it arrives, because the call has
// already taken effect through the second copy.
func TestRequestLate(t *testing.T) {
	eachCall(t, func(t *testing.T, s *scene, step step) {
		late := newLateCopy()
		s.proxy.plan(accident{kind: requestLate, late: late})
		g, err := step.call(t.Context())
		require.NoError(t, err)
		require.Equal(t, step.after, g)
		// Give it the best chance: the tile is free.
		require.NoError(t, s.direct.Release(t.Context(), g))
		free := s.row(t)
		require.False(t, free.Held())
		late.arrive()
		require.Equal(t, free, s.row(t))
	})
}

// A late copy of a release must not release the next owner.
func TestRequestLateAfterSuccessor(t *testing.T) {
	eachCall(t, func(t *testing.T, s *scene, step step) {
		late := newLateCopy()
		s.proxy.plan(accident{kind: requestLate, late: late})
		_, err := step.call(t.Context())
		require.NoError(t, err)
		successor, err := s.takeOver(t.Context(), step)
		require.NoError(t, err)
		late.arrive()
		require.Equal(t, bare(successor), s.row(t))
	})
}

// A server that goes silent is noticed when the context ends, and at no other cost than the context's.
func TestSilence(t *testing.T) {
	eachCall(t, func(t *testing.T, s *scene, step step) {
		late := newLateCopy()
		s.proxy.plan(accident{kind: silence, late: late})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := step.call(ctx)
		require.Less(t, time.Since(began), 5*time.Second)
		require.ErrorIs(t, err, fence.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		late.arrive()
		g, err := step.call(t.Context())
		require.NoError(t, err)
		require.Equal(t, step.after, g)
	})
}

func TestLookupWithAccidents(t *testing.T) {
	s := newScene(t)
	held, err := s.a.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)
	s.proxy.plan(accident{kind: answerLost})
	g, err := s.a.Lookup(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, held, g)
	s.proxy.plan(accident{kind: answerLost}, accident{kind: requestLost})
	_, err = s.a.Lookup(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrNotApplied)
}

// When a server restarts, every idle connection of a pool is dead.
func TestAllConnectionsDead(t *testing.T) {
	const name = "about_to_die"
	s := newScene(t, func(c *pgxpool.Config) {
		c.MinConns, c.MaxConns = 8, 8
		c.ConnConfig.RuntimeParams["application_name"] = name
	})
	held, err := s.a.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)
	count := "SELECT count(*) FROM pg_stat_activity WHERE application_name = '" + name + "'"
	waittest.Until(t, func() bool {
		var n int
		return s.pool.QueryRow(t.Context(), count).Scan(&n) == nil && n == 8
	}, 10*time.Second, 10*time.Millisecond)
	s.exec(t, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '"+name+"'")

	c := claimOf(tile, "b:1")
	c.Expected = held.Epoch
	g, err := s.a.Promote(t.Context(), c)
	require.NoError(t, err)
	require.EqualValues(t, 2, g.Epoch)
}

// The session is ended while its statement waits for the row.
func TestSessionEndedMidway(t *testing.T) {
	s := newScene(t)
	held, err := s.a.Claim(t.Context(), claimOf(tile, "a:1"))
	require.NoError(t, err)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM "+s.table+" FOR UPDATE")
	require.NoError(t, err)

	answered := make(chan error, 1)
	c := claimOf(tile, "b:1")
	c.Expected = held.Epoch
	go func() {
		_, err := s.a.Promote(t.Context(), c)
		answered <- err
	}()
	waittest.Until(t, func() bool {
		var n int
		err := s.pool.QueryRow(t.Context(),
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
		return err == nil && n > 0
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-answered)
	require.EqualValues(t, 2, s.row(t).Epoch)
}

func TestServerDown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := "postgres://nobody@" + listener.Addr().String() + "/none?sslmode=disable"
	call := func(t *testing.T, within time.Duration) error {
		a, err := pgfence.New(newPool(t, address), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		began := time.Now()
		_, err = a.Claim(ctx, claimOf(tile, "a:1"))
		require.Less(t, time.Since(began), 5*time.Second)
		require.ErrorIs(t, err, fence.ErrNotApplied)
		require.Error(t, a.Migrate(ctx))
		return err
	}
	t.Run("accepts and says nothing", func(t *testing.T) {
		require.ErrorIs(t, call(t, 100*time.Millisecond), context.DeadlineExceeded)
	})
	require.NoError(t, listener.Close())
	t.Run("refuses", func(t *testing.T) {
		require.ErrorContains(t, call(t, time.Minute), "connection refused")
	})
}

// What the server refuses has not been applied, at the commit no less than before.
func TestRefused(t *testing.T) {
	fresh := scenes(t)
	for _, test := range []struct {
		name, when, code string
		outcome          error
	}{
		{"at the statement", "BEFORE INSERT", "P0001", fence.ErrNotApplied},
		{"at the commit", "AFTER INSERT", "P0001", fence.ErrNotApplied},
		{"serialization failure at the commit", "AFTER INSERT", "40001", fence.ErrNotApplied},
		{"deadlock", "BEFORE INSERT", "40P01", fence.ErrNotApplied},
		// What a coordinator says of a shard it has lost.
		{"connection failure", "BEFORE INSERT", "08006", fence.ErrUnknownOutcome},
		{"completion unknown", "AFTER INSERT", "40003", fence.ErrUnknownOutcome},
		{"internal error", "AFTER INSERT", "XX000", fence.ErrUnknownOutcome},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := fresh(t)
			s.exec(t, "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "+
				"$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '"+test.code+"'; END $$")
			kind, deferred := "TRIGGER", ""
			if test.when == "AFTER INSERT" {
				kind, deferred = "CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED"
			}
			s.exec(t, "CREATE "+kind+" refuse "+test.when+" ON "+s.table+" "+deferred+
				" FOR EACH ROW EXECUTE FUNCTION refuse()")

			c := claimOf(tile, "a:1")
			g, err := s.a.Claim(t.Context(), c)
			require.ErrorIs(t, err, test.outcome)
			require.ErrorContains(t, err, "refused")
			require.Zero(t, g)
			require.Zero(t, s.row(t))

			s.exec(t, "DROP TRIGGER refuse ON "+s.table)
			g, err = s.a.Claim(t.Context(), c)
			require.NoError(t, err)
			require.EqualValues(t, 1, g.Epoch)
		})
	}
}

func TestRefusedBySettings(t *testing.T) {
	fresh := scenes(t)
	for name, setting := range map[string][2]string{
		"time limit":   {"lock_timeout", "20ms"},
		"statement":    {"statement_timeout", "20ms"},
		"standby-like": {"default_transaction_read_only", "on"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[setting[0]] = setting[1] })
			held, err := s.direct.Claim(t.Context(), claimOf(tile, "a:1"))
			require.NoError(t, err)
			tx, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(t.Context(), "SELECT FROM "+s.table+" FOR UPDATE")
			require.NoError(t, err)

			c := claimOf(tile, "b:1")
			c.Expected = held.Epoch
			_, err = s.a.Promote(t.Context(), c)
			require.ErrorIs(t, err, fence.ErrNotApplied)
			require.Equal(t, bare(held), s.row(t))
		})
	}
}
