// Package stacktest gives tests the real servers they run against.
//
//	func TestStore(t *testing.T) {
//		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stacktest.Redis(t)})
//	}
//
// The servers are those named by the environment (see package devstack), which `make test` starts once
// for all packages. Without them a test is skipped in a plain `go test ./...`, but fails under
// `make test`, which sets TILEFENCE_REQUIRE_SERVERS=1: there, a test that does not run is an error.
//
// The servers are shared by all test packages, which run at the same time, and keep what earlier runs
// left. So a test uses names of its own ([UniqueName], [PostgresDB]), flushes nothing, and breaks nothing;
// to break a server it starts a stack of its own with [Start].
package stacktest

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tilefence/tilefence/internal/devstack"
)

// Redis returns the node addresses of the coordination cluster: three masters with a replica each.
func Redis(t testing.TB) []string {
	t.Helper()
	return strings.Split(address(t, devstack.EnvRedis), ",")
}

// Fanout returns the node addresses of the fan-out cluster: three masters.
func Fanout(t testing.TB) []string {
	t.Helper()
	return strings.Split(address(t, devstack.EnvFanout), ",")
}

// Postgres returns the URL of the shared database, with all rights. Tests that create tables under fixed
// names want [PostgresDB].
func Postgres(t testing.TB) string {
	t.Helper()
	return address(t, devstack.EnvPostgres)
}

// DynamoDB returns the endpoint of the DynamoDB-compatible server; any region and credentials do. Tables
// are shared, so name them with [UniqueName].
func DynamoDB(t testing.TB) string {
	t.Helper()
	return address(t, devstack.EnvDynamoDB)
}

// Views returns the address of the Redis for the relays' views.
func Views(t testing.TB) string {
	t.Helper()
	return address(t, devstack.EnvViews)
}

// PostgresDB creates an empty database for this test alone and returns its URL. It is dropped at the end
// of the test, even while clients are connected to it.
func PostgresDB(t testing.TB) string {
	t.Helper()
	shared := Postgres(t)
	name := UniqueName(t)
	execute(t, shared, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	t.Cleanup(func() {
		execute(t, shared, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	})
	own, err := url.Parse(shared)
	if err != nil {
		t.Fatalf("stacktest: %s is no URL: %v", devstack.EnvPostgres, err)
	}
	own.Path = "/" + name
	return own.String()
}

// UniqueName returns a name that no other call returns, in this or any other process: the test's name
// and random characters, at most 48 of a-z, 0-9 and _, starting with a letter. It is valid as the name of
// a table in PostgreSQL and DynamoDB, and as part of a Redis key.
func UniqueName(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("%.32s_%s", plain(t.Name()), strings.ToLower(rand.Text()[:15]))
}

// Start starts a stack that belongs to this test alone, for tests that break servers; it is stopped at
// the end of the test. Like a test without servers, such a test runs only under `make test`.
func Start(t testing.TB, cfg devstack.Config) *devstack.Stack {
	t.Helper()
	RequireFullTest(t)
	stack, err := devstack.Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("stacktest: %v", err)
	}
	t.Cleanup(stack.Stop)
	return stack
}

// RequireFullTest skips a test that starts servers in a way of its own, unless it runs under `make test`.
func RequireFullTest(t testing.TB) {
	t.Helper()
	if os.Getenv(devstack.EnvRequire) != "1" {
		t.Skipf("starts servers of its own: run `make test`, or set %s=1", devstack.EnvRequire)
	}
}

// FreePort returns a port of 127.0.0.1 that was free a moment ago, below those that the kernel gives to outgoing
// connections: none of them can take the port of a server while it restarts.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 22001 + mathrand.IntN(9999)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func address(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	switch {
	case value != "":
		return value
	case os.Getenv(devstack.EnvRequire) == "1":
		t.Fatalf("stacktest: %s is not set, and %s=1 forbids to skip: run `make test`, which starts the servers",
			variable, devstack.EnvRequire)
	default:
		t.Skipf("%s is not set: run `make test`, which starts the servers", variable)
	}
	return ""
}

func execute(t testing.TB, address, sql string) {
	t.Helper()
	// Not the test's context: cleanups run after that has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatalf("stacktest: connect to PostgreSQL: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("stacktest: %s: %v", sql, err)
	}
}

// plain replaces everything but letters and digits with _, in lower case.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '_'
		}
	}, name)
}
