package redisshare_test

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
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/stream/share/redisshare"
)

const patience = 60 * time.Second

// Of a member that is a process of its own: the group and the nodes' addresses, separated by a blank.
const envMember = "TILEFENCE_TEST_SHARE_MEMBER"

const processTiles = 120

func processWorld() (tiles []fence.TileID) {
	for i := range fence.TileID(processTiles) {
		tiles = append(tiles, 0x85283473fffffff+i<<30)
	}
	return tiles
}

// reporter is a Target that writes what happens, a line a tile.
type reporter struct{ to io.Writer }

func (r reporter) Add(tiles ...fence.TileID) error {
	for _, t := range tiles {
		fmt.Fprintf(r.to, "+ %d\n", uint64(t))
	}
	return nil
}

func (r reporter) Remove(tiles ...fence.TileID) {
	for _, t := range tiles {
		fmt.Fprintf(r.to, "- %d\n", uint64(t))
	}
}

func (r reporter) member(group string, addrs []string) (*share.Share, func() error, error) {
	client := redis.NewClusterClient(redisfanout.Options(addrs...))
	s, err := share.New(redisshare.New(client, fence.World{}), group, share.Fixed(processWorld()), r, nil)
	return s, client.Close, err
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
	has map[fence.TileID]bool
}

func (s *seen) read(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var sign string
		var tile fence.TileID
		if n, _ := fmt.Sscan(lines.Text(), &sign, (*uint64)(&tile)); n != 2 {
			continue
		}
		s.mu.Lock()
		if delete(s.has, tile); sign == "+" {
			s.has[tile] = true
		}
		s.mu.Unlock()
	}
}

func (s *seen) tiles() (all []fence.TileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.has {
		all = append(all, t)
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
	s := &seen{has: map[fence.TileID]bool{}}
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
	s := &seen{has: map[fence.TileID]bool{}}
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

// awaitShared waits until the members have every tile between them, none twice, and each has some.
func awaitShared(t *testing.T, why string, members ...*seen) {
	t.Helper()
	waittest.Until(t, func() bool {
		var all []fence.TileID
		for _, m := range members {
			has := m.tiles()
			if len(has) == 0 {
				return false
			}
			all = append(all, has...)
		}
		slices.Sort(all)
		return len(all) == processTiles && len(slices.Compact(all)) == processTiles
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

	lost := one.tiles()
	began := time.Now()
	require.NoError(t, oneCmd.Process.Kill())
	_ = oneCmd.Wait()
	awaitShared(t, "one was killed", here, two, also)
	t.Logf("%d tiles of a killed process were taken over after %v (TTL %v, heartbeat %v)",
		len(lost), time.Since(began).Round(time.Millisecond), 3*time.Second, time.Second)

	began = time.Now()
	require.NoError(t, twoIn.Close())
	awaitShared(t, "one has left", here, also)
	t.Logf("a planned leave was complete after %v", time.Since(began).Round(time.Millisecond))
	waittest.Until(t, func() bool { return len(two.tiles()) == 0 }, patience, time.Millisecond)

	three, _, _ := startProcess(t, group, addrs)
	awaitShared(t, "one has come", here, also, three)
	stopHere()
	stopAlso()
	awaitShared(t, "one is left", three)
}
