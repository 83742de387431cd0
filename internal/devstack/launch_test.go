//go:build linux

package devstack_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

func TestServersWithAddressesOfTheirOwn(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Dir: openDir(t), OwnAddresses: true,
		Parts: []devstack.Part{devstack.Coordination, devstack.Postgres}})
	hosts := map[string]bool{}
	for _, p := range stack.Processes() {
		host, _, err := net.SplitHostPort(p.Addr())
		require.NoError(t, err)
		hosts[host] = true
	}
	require.Len(t, hosts, 7, "six nodes and a database")
	writeToRedis(t, stack.CoordAddrs, 1)
	writeToPostgres(t, stack.PostgresURL)
	u, err := url.Parse(stack.PostgresURL)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(u.Host, "127.0.1."), u.Host)
}

func TestALaunchedProgramIsAProcessOfTheStack(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Dir: openDir(t), Parts: []devstack.Part{}})
	ready := func(context.Context, int) error { return nil }
	program := devstack.Program{Name: "sleeper", Path: "/bin/sh",
		Args: []string{"-c", `echo "$GREETING"; sleep 60 & wait`}, Env: []string{"GREETING=hello"}, Ready: ready}
	p, err := stack.Launch(t.Context(), program)
	require.NoError(t, err)
	_, err = stack.Launch(t.Context(), program)
	require.ErrorContains(t, err, "sleeper")
	waittest.Until(t, func() bool {
		text, err := os.ReadFile(p.LogPath())
		return err == nil && string(text) == "hello\n"
	}, 10*time.Second, 5*time.Millisecond)

	// The shell's child is stopped with it.
	var child int
	waittest.Until(t, func() bool {
		found := devstack.Descendants(p.Pid())
		if len(found) == 1 {
			child = found[0]
		}
		return child != 0
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, p.SignalAll(syscall.SIGSTOP))
	waittest.Until(t, func() bool { return state(t, p.Pid()) == "T" && state(t, child) == "T" }, 10*time.Second,
		5*time.Millisecond)
	require.NoError(t, p.SignalAll(syscall.SIGKILL))
	<-p.Exited()

	p.Stop()
	again, err := stack.Launch(t.Context(), program)
	require.NoError(t, err, "the name is free again")
	again.Stop()
}

// state is the kernel's letter for what a process is doing.
func state(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
}
