// Package starttest tests how a program starts: what it does while a back end is away, and with a setting that is
// wrong. All example programs take the same environment, so one table is for all of them.
package starttest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// Program returns the command that starts a program, which answers probes at an address.
type Program func(operator string) *exec.Cmd

// within is how long a program with a wrong setting may take to end, on a machine that is busy. It takes milliseconds.
const within = 20 * time.Second

// password must not be in what a program says.
const password = "hush-hush"

// fault is a setting that is wrong. The back ends that it does not name are away.
type fault struct {
	name string
	env  func(t *testing.T) []string
	says []string // in the last line that the program writes
}

// is is a fault of one variable.
func is(variable string) func(*testing.T) []string {
	return func(*testing.T) []string { return []string{variable} }
}

var faults = []fault{
	{"URL that cannot be parsed", is("TILEFENCE_POSTGRES=postgres://u:" + password + "@127.0.0.1:port/x"),
		[]string{"TILEFENCE_POSTGRES", "want postgres://user:password@host/database"}},
	{"URL of another service", is("TILEFENCE_REDIS=http://u:" + password + "@127.0.0.1:1"),
		[]string{"http://", "redis://user:password@host:port"}},
	{"name that no world has", is("TILEFENCE_WORLD=Not a world"), []string{"Not a world", "lower-case letters"}},
	{"short secret", is("TILEFENCE_SECRET=ab"), []string{"want "}},
	{"wrong password", refusingPostgres, []string{"PostgreSQL: ", "password authentication failed",
		"correct the user and the password in the URL"}},
	{"Redis that wants a password", refusingRedis, []string{"Redis", "NOAUTH",
		"set Username and Password of the options"}},
	{"world of another deployment", anotherWorld, []string{"belongs to another world", "{tilefence:world}",
		"give the two worlds different names"}},
}

// Run tests a program: it ends at once if a setting is wrong, with a line that says what to change; it waits for a back
// end that is away, answers probes meanwhile, and has not failed if it is stopped then.
func Run(t *testing.T, program Program) {
	if runtime.GOOS != "linux" {
		t.Skip("needs loopback addresses that only Linux has")
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			refuses(t, program, f)
		})
	}
	t.Run("back ends that are away", func(t *testing.T) {
		t.Parallel()
		waits(t, program)
	})
}

func refuses(t *testing.T, program Program, f fault) {
	c, out := command(t, program, loopback(), f.env(t))
	require.NoError(t, c.Start())
	ended := time.AfterFunc(within, func() { _ = c.Process.Kill() })
	err := c.Wait()
	require.True(t, ended.Stop(), "it waits, though the setting stays wrong:\n%s", out)
	exit, failed := errors.AsType[*exec.ExitError](err)
	require.True(t, failed && exit.ExitCode() > 0, "%v\n%s", err, out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, says := range f.says {
		require.Contains(t, lines[len(lines)-1], says, "%s", out)
	}
	require.NotContains(t, out.String(), password)
}

func waits(t *testing.T, program Program) {
	host := loopback()
	c, out := command(t, program, host, nil)
	require.NoError(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill() }) // it has ended unless the test failed
	ask := func(path string) (int, string) {
		r, err := http.Get("http://" + host + ":9000" + path)
		if err != nil {
			return 0, ""
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(body)
	}
	waittest.Until(t, func() bool {
		status, body := ask("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "starting: waiting for PostgreSQL")
	}, within, 20*time.Millisecond, "the readiness names the back end")
	status, _ := ask("/livez")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		require.NoError(t, err, "it ends when it is asked to:\n%s", out)
		require.Contains(t, out.String(), "stopped")
	case <-time.After(within):
		require.Fail(t, "it does not end when it is asked to")
	}
}

// command is the program with back ends that are away, and more variables.
func command(t *testing.T, program Program, host string, more []string) (*exec.Cmd, *bytes.Buffer) {
	c, out := program(host+":9000"), new(bytes.Buffer)
	c.Env = slices.DeleteFunc(append(os.Environ(), c.Env...), func(v string) bool {
		return strings.HasPrefix(v, "TILEFENCE_") || strings.HasPrefix(v, "AWS_")
	})
	c.Env = append(c.Env, "TILEFENCE_REDIS=127.0.0.1:1", "TILEFENCE_POSTGRES=postgres://u:"+password+"@127.0.0.1:1/x",
		"TILEFENCE_DYNAMODB=http://127.0.0.1:1", "AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:1", "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "TILEFENCE_SECRET="+strings.Repeat("ab", 32),
		"TILEFENCE_OPERATOR="+host+":9000", "TILEFENCE_CONTACT="+host+":7000", "TILEFENCE_GOSSIP="+host+":7946",
		"TMPDIR="+t.TempDir())
	c.Env = append(c.Env, more...)
	c.Stdout, c.Stderr = out, out
	return c, out
}

// loopback is a loopback address of its own, on which every port is free: nothing else on the machine uses it.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254))
}

// refusingPostgres knows no password.
func refusingPostgres(t *testing.T) []string {
	address := serve(t, func(c net.Conn) {
		server := pgproto3.NewBackend(c, c)
		for {
			m, err := server.ReceiveStartupMessage()
			if err != nil {
				return
			}
			if _, ok := m.(*pgproto3.StartupMessage); !ok { // it asks for TLS
				_, _ = c.Write([]byte("N"))
				continue
			}
			server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "28P01",
				Message: `password authentication failed for user "u"`})
			_ = server.Flush()
			return
		}
	})
	return []string{"TILEFENCE_POSTGRES=postgres://u:" + password + "@" + address + "/x"}
}

// refusingRedis wants a password for all.
func refusingRedis(t *testing.T) []string {
	postgres := stacktest.PostgresDB(t)
	address := serve(t, func(c net.Conn) {
		for r := bufio.NewScanner(c); r.Scan(); {
			if strings.HasPrefix(r.Text(), "*") { // a command begins
				_, _ = c.Write([]byte("-NOAUTH Authentication required.\r\n"))
			}
		}
	})
	return []string{"TILEFENCE_POSTGRES=" + postgres, "TILEFENCE_REDIS=" + address}
}

// anotherWorld is a Redis that has a world of the same name.
func anotherWorld(t *testing.T) []string {
	postgres, addresses := stacktest.PostgresDB(t), stacktest.Redis(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	t.Cleanup(func() { _ = client.Close() })
	world := fence.World{Name: fmt.Sprintf("starts-%d", rand.Uint64()), ID: fence.NewWorldID()}
	key := world.Key(fence.WorldRecord)
	require.NoError(t, client.Set(t.Context(), key, world.ID.String(), time.Hour).Err())
	return []string{"TILEFENCE_POSTGRES=" + postgres, "TILEFENCE_REDIS=" + strings.Join(addresses, ","),
		"TILEFENCE_WORLD=" + world.Name}
}

// serve serves connections until the test ends.
func serve(t *testing.T, each func(net.Conn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}
