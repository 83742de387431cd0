//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// asCommand makes the test binary behave as tilectl dev.
const asCommand = "TILEFENCE_TEST_AS_DEV"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(dev(os.Args[1:], os.Stderr))
	}
	os.Exit(m.Run())
}

// session is a running tilectl dev.
type session struct {
	cmd *exec.Cmd
	out *bufio.Reader
	err bytes.Buffer
	dir string // where its stack makes its directory
}

func begin(t *testing.T, args ...string) *session {
	t.Helper()
	s := &session{cmd: exec.Command(os.Args[0], args...), dir: t.TempDir()}
	require.NoError(t, os.Chmod(filepath.Dir(s.dir), 0o755)) // for the user that PostgreSQL runs as
	s.cmd.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+s.dir, devstack.EnvDynamoDB+"=", devstack.EnvRequire+"=")
	s.cmd.Stderr = &s.err
	// Without a terminal, as in CI, whatever the tests are run from.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	// A process that should have been ended would hold the pipe open for ever.
	require.NoError(t, out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute)))
	s.out = bufio.NewReader(out)
	require.NoError(t, s.cmd.Start())
	return s
}

// pid reads the next line, a process id.
func (s *session) pid(t *testing.T) int {
	t.Helper()
	line, err := s.out.ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return pid
}

// end waits for tilectl dev, checks that its stack is gone, and returns the rest of the output and the code.
func (s *session) end(t *testing.T) (string, int) {
	t.Helper()
	rest, err := io.ReadAll(s.out)
	require.NoError(t, err)
	_ = s.cmd.Wait() // the code is looked at instead
	left, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, serversBelow(t, s.dir))
	return string(rest), s.cmd.ProcessState.ExitCode()
}

func TestDevUsage(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":         {[]string{"-h"}, 0, "Usage: tilectl dev"},
		"no command":   {nil, statusUsage, "no command given"},
		"unknown flag": {[]string{"-z", "true"}, statusUsage, "-z"},
		"unknown part": {[]string{"-parts", "etcd", "true"}, statusUsage, "etcd"},
		"replicas":     {[]string{"-replicas", "0", "true"}, statusUsage, "want 1 to 5"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			require.Equal(t, tt.code, dev(tt.args, &stderr))
			require.Contains(t, stderr.String(), tt.says)
		})
	}
}

func TestCommandGetsTheServersAndItsCodeIsReturned(t *testing.T) {
	stacktest.RequireFullTest(t)
	s := begin(t, "-v", "-parts", "dynamodb", "--", "sh", "-c",
		"echo $TILEFENCE_DYNAMODB $TILEFENCE_REQUIRE_SERVERS; exit 7")
	out, code := s.end(t)
	require.Equal(t, 7, code)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+ 1\n$`, out)
	require.Contains(t, s.err.String(), "dynamodb ready in ")
}

// TestRestart: a server is killed and started again at its address, by an order from within the command.
func TestRestart(t *testing.T) {
	stacktest.RequireFullTest(t)
	s := begin(t, "-parts", "views", "--", "sh", "-c", "echo $TILEFENCE_DEV $TILEFENCE_VIEWS; exec sleep 1000")
	var socket, address string
	_, err := fmt.Fscan(s.out, &socket, &address)
	require.NoError(t, err)
	t.Setenv(envDev, socket)
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	run := func() string {
		info, err := client.Info(t.Context(), "server").Result()
		require.NoError(t, err)
		return redislib.InfoField(info, "run_id")
	}
	first := run()
	var stderr bytes.Buffer
	require.Equal(t, statusOK, dev([]string{"restart", "views"}, &stderr), stderr.String())
	require.NotEqual(t, first, run())
	require.Equal(t, statusFailed, dev([]string{"restart", "etcd"}, &stderr))
	require.Contains(t, stderr.String(), `there is no server "etcd"; there are views`)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	_, code := s.end(t)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), code)
}

func TestCommandThatCannotRun(t *testing.T) {
	stacktest.RequireFullTest(t)
	s := begin(t, "-parts", "dynamodb", "--", "/nowhere/to/be/found")
	_, code := s.end(t)
	require.Equal(t, exitNotRunning, code)
	require.Contains(t, s.err.String(), "/nowhere/to/be/found")
}

// TestWhatIsNotInstalledIsLeftOut: the others are started, and the command knows of no server that is not there.
func TestWhatIsNotInstalledIsLeftOut(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Setenv("TILEFENCE_DYNOXIDE", "/nowhere/dynoxide")
	s := begin(t, "--", "sh", "-c", `echo "$TILEFENCE_DYNAMODB,$TILEFENCE_REQUIRE_SERVERS,$TILEFENCE_POSTGRES"`)
	out, code := s.end(t)
	require.Zero(t, code, s.err.String())
	require.Regexp(t, `^,,postgres://`, out)
	require.Contains(t, s.err.String(), "dynamodb: devstack: dynoxide is not installed")
	require.Contains(t, s.err.String(), "coordination, fanout, postgres, views ready")
}

func TestMissingProgramIsReported(t *testing.T) {
	t.Setenv("TILEFENCE_DYNOXIDE", "/nowhere/dynoxide")
	s := begin(t, "-parts", "dynamodb", "--", "true")
	_, code := s.end(t)
	require.Equal(t, exitStack, code)
	require.Contains(t, s.err.String(), "dynoxide is not installed")
}

func TestSignalsReachTheCommandAndItsChildren(t *testing.T) {
	stacktest.RequireFullTest(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		// The child is in the background, where a shell makes it ignore SIGINT; env sets that right.
		s := begin(t, "-parts", "dynamodb", "--", "sh", "-c", "env --default-signal sleep 1000 & echo $!; wait")
		child := s.pid(t)
		time.Sleep(100 * time.Millisecond) // env has become sleep
		require.NoError(t, s.cmd.Process.Signal(sig))
		_, code := s.end(t)
		require.Equal(t, exitSignal+int(sig), code)
		requireGone(t, child)
	}
}

func TestSecondSignalKills(t *testing.T) {
	stacktest.RequireFullTest(t)
	s := begin(t, "-parts", "dynamodb", "--", "sh", "-c", "trap 'echo 1' TERM; echo $$; while :; do sleep 0.05; done")
	command := s.pid(t)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 1, s.pid(t), "it has caught the first")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	_, code := s.end(t)
	require.Equal(t, exitSignal+int(syscall.SIGKILL), code)
	requireGone(t, command)
}

func TestSignalWhileTheServersStart(t *testing.T) {
	stacktest.RequireFullTest(t)
	s := begin(t, "-parts", "fanout", "--", "echo", "started")
	waittest.Until(t, func() bool { return len(serversBelow(t, s.dir)) > 0 }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	out, code := s.end(t)
	require.Equal(t, exitSignal+int(syscall.SIGINT), code)
	require.Empty(t, out, "the command was not run")
}

func TestWhatTheCommandLeavesBehindIsEnded(t *testing.T) {
	stacktest.RequireFullTest(t)
	s := begin(t, "-parts", "dynamodb", "--", "sh", "-c", "sleep 1000 & echo $!")
	child := s.pid(t)
	_, code := s.end(t)
	require.Zero(t, code)
	requireGone(t, child)
}

func TestKilledDevLeavesNoProcess(t *testing.T) {
	stacktest.RequireFullTest(t)
	s := begin(t, "-parts", "dynamodb", "--", "sh", "-c", "echo $$; sleep 1000 & echo $!; wait")
	command, child := s.pid(t), s.pid(t)
	require.NotEmpty(t, serversBelow(t, s.dir))
	require.NoError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait() // says that it was killed
	requireGone(t, command)
	requireGone(t, child)
	waittest.Until(t, func() bool { return len(serversBelow(t, s.dir)) == 0 }, 10*time.Second, 10*time.Millisecond)
}

func requireGone(t *testing.T, pid int) {
	t.Helper()
	waittest.Until(t, func() bool {
		// A process that ended and has not been waited for has no executable any more.
		_, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		return err != nil
	}, 10*time.Second, 10*time.Millisecond, "process %d still runs", pid)
}

// serversBelow returns the processes whose working directory lies below dir.
func serversBelow(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	var pids []string
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir+"/") {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	return pids
}
