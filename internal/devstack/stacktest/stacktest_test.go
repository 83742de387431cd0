package stacktest_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// recorder is a test whose end can be looked at. Fatalf and Skipf must not return, so they panic with it.
type recorder struct {
	testing.TB
	verdict string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.stop("fatal: " + fmt.Sprintf(format, args...))
}
func (r *recorder) Skipf(format string, args ...any) { r.stop("skip: " + fmt.Sprintf(format, args...)) }

func (r *recorder) stop(verdict string) {
	r.verdict = verdict
	panic(r)
}

// verdict returns how f ended the test it was given, or "" if it did not.
func verdict(t *testing.T, f func(testing.TB)) string {
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		f(r)
	}()
	return r.verdict
}

func TestAMissingServerIsSkippedOnlyOutsideTheFullTest(t *testing.T) {
	for variable, ask := range map[string]func(testing.TB){
		devstack.EnvRedis:    func(t testing.TB) { stacktest.Redis(t) },
		devstack.EnvFanout:   func(t testing.TB) { stacktest.Fanout(t) },
		devstack.EnvPostgres: func(t testing.TB) { stacktest.PostgresDB(t) },
		devstack.EnvDynamoDB: func(t testing.TB) { stacktest.DynamoDB(t) },
		devstack.EnvViews:    func(t testing.TB) { stacktest.Views(t) },
	} {
		t.Setenv(variable, "")
		t.Setenv(devstack.EnvRequire, "")
		require.Regexp(t, "^skip: "+variable+" .*make test", verdict(t, ask))
		t.Setenv(devstack.EnvRequire, "1")
		require.Regexp(t, "^fatal: .*"+variable, verdict(t, ask))
	}
}

func TestStartIsForTheFullTest(t *testing.T) {
	t.Setenv(devstack.EnvRequire, "")
	require.Regexp(t, "^skip: ", verdict(t, func(t testing.TB) { stacktest.Start(t, devstack.Config{}) }))
}

func TestAddressesOfTheSharedServers(t *testing.T) {
	addresses := append(stacktest.Redis(t), stacktest.Fanout(t)...)
	addresses = append(addresses, strings.TrimPrefix(stacktest.DynamoDB(t), "http://"))
	for _, addr := range addresses {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}

func TestPostgresDBIsOwnAndDropped(t *testing.T) {
	stacktest.Postgres(t) // without a server the whole test is skipped, not its first half
	var own string
	t.Run("use", func(t *testing.T) {
		own = stacktest.PostgresDB(t)
		conn, err := pgx.Connect(t.Context(), own)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "CREATE TABLE owners (tile bigint)")
		require.NoError(t, err)
		require.NotEqual(t, own, stacktest.PostgresDB(t), "each call makes one")
		// The connection stays open, which must not keep the database.
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	})
	_, err := pgx.Connect(t.Context(), own)
	require.ErrorContains(t, err, "does not exist")
}

func TestUniqueNameIsPlainAndUnique(t *testing.T) {
	t.Run("Ünïcode/and a very long name, longer than any database would like", func(t *testing.T) {
		valid := regexp.MustCompile(`^[a-z][a-z0-9_]{2,47}$`)
		seen := make(map[string]bool)
		for range 100 {
			name := stacktest.UniqueName(t)
			require.Regexp(t, valid, name)
			require.False(t, seen[name])
			seen[name] = true
		}
	})
}
