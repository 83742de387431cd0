package redisshard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/shard"
	"github.com/tilefence/tilefence/stream/shard/redisshard"
)

const patience = 60 * time.Second

// Of a member that is a process of its own: the group and the nodes' addresses, separated by a blank.
const envMember = "TILEFENCE_TEST_SHARD_MEMBER"

const processShards = 12

func processRanges() shard.Ranges {
	var cuts []fence.TileID
	for i := range processShards - 1 {
		cuts = append(cuts, fence.TileID(i+1)*1000)
	}
	r, _ := shard.NewRanges(cuts...) // they ascend
	return r
}

// reporter is a Handler that writes what happens, a line each.
type reporter struct{ to io.Writer }

func (r reporter) Gained(s int, token shard.Token) { fmt.Fprintf(r.to, "+ %d %d\n", s, token) }
func (r reporter) Lost(_ context.Context, s int)   { fmt.Fprintf(r.to, "- %d 0\n", s) }
func (r reporter) member(group string, addrs []string) (*shard.Member, func() error, error) {
	client := redis.NewClusterClient(redisfanout.Options(addrs...))
	leases, err := redisshard.New(client)
	if err != nil {
		return nil, nil, err
	}
	m, err := shard.NewMember(leases, group, processRanges(), r, nil)
	return m, client.Close, err
}

// memberProcess is a member until its standard input ends.
func memberProcess() int {
	group, addrs, _ := strings.Cut(os.Getenv(envMember), " ")
	m, closeClient, err := reporter{os.Stdout}.member(group, strings.Split(addrs, ","))
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		err = m.Run(ctx)
		_ = closeClient()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// seen is what a member has reported.
type seen struct {
	mu  sync.Mutex
	has map[int]shard.Token
}

func (s *seen) read(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var sign string
		var i int
		var token shard.Token
		if n, _ := fmt.Sscan(lines.Text(), &sign, &i, &token); n != 3 {
			continue
		}
		s.mu.Lock()
		if delete(s.has, i); sign == "+" {
			s.has[i] = token
		}
		s.mu.Unlock()
	}
}

func (s *seen) shards() (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.has {
		all = append(all, i)
	}
	return all
}

// startProcess starts a member as a process.
func startProcess(t *testing.T, group string, addrs []string) (*seen, *exec.Cmd, io.Closer) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envMember+"="+group+" "+strings.Join(addrs, ","))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s := &seen{has: map[int]shard.Token{}}
	go s.read(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return s, cmd, in
}

// startGoroutine starts a member in this process; the function ends it.
func startGoroutine(t *testing.T, group string, addrs []string) (*seen, func()) {
	t.Helper()
	out, in := io.Pipe()
	m, closeClient, err := reporter{in}.member(group, addrs)
	require.NoError(t, err)
	s := &seen{has: map[int]shard.Token{}}
	go s.read(out)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		_ = in.Close()
		_ = closeClient()
	})
	t.Cleanup(stop)
	return s, stop
}

// awaitShared waits until the members have every shard between them, none twice, evenly.
func awaitShared(t *testing.T, why string, members ...*seen) {
	t.Helper()
	require.Eventually(t, func() bool {
		var all []int
		least, most := processShards, 0
		for _, m := range members {
			has := m.shards()
			all = append(all, has...)
			least, most = min(least, len(has)), max(most, len(has))
		}
		slices.Sort(all)
		return len(all) == processShards && len(slices.Compact(all)) == processShards && most-least <= 1
	}, patience, 5*time.Millisecond, why)
}

// TestTakeover: members in this process and in others share; one process is killed, one leaves, and each
// time the rest take over all that it had.
func TestTakeover(t *testing.T) {
	addrs, group := stacktest.Fanout(t), stacktest.UniqueName(t)
	here, stopHere := startGoroutine(t, group, addrs)
	one, oneCmd, _ := startProcess(t, group, addrs)
	two, _, twoIn := startProcess(t, group, addrs)
	also, stopAlso := startGoroutine(t, group, addrs)
	awaitShared(t, "four members share", here, one, two, also)

	lost := one.shards()
	began := time.Now()
	require.NoError(t, oneCmd.Process.Kill())
	_ = oneCmd.Wait()
	awaitShared(t, "one was killed", here, two, also)
	t.Logf("%d shards of a killed process were taken over after %v (TTL %v, heartbeat %v)",
		len(lost), time.Since(began).Round(time.Millisecond), shard.DefaultTTL, shard.DefaultTTL/3)

	began = time.Now()
	require.NoError(t, twoIn.Close())
	awaitShared(t, "one has left", here, also)
	t.Logf("a planned leave was complete after %v", time.Since(began).Round(time.Millisecond))
	require.Eventually(t, func() bool { return len(two.shards()) == 0 }, patience, time.Millisecond, "it had ceased before")

	three, _, _ := startProcess(t, group, addrs)
	awaitShared(t, "one has come", here, also, three)
	stopHere()
	stopAlso()
	awaitShared(t, "one is left", three)
}
