//go:build linux

package benchmark

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/benchmark/processor"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// planes is a deployment in which every part is a process of its own, on servers of its own that may be broken.
// The commit path (owner and coordination nodes) has one half of the processors and everything else the other, as if
// they were different machines; TILEFENCE_BENCH_PIN=off, or a single processor, lets them share all.
type planes struct {
	stack  *devstack.Stack
	client *redis.ClusterClient
	store  *redisfence.Store
	log    *redisstream.Log
	front  *unix.CPUSet // of the commit path; nil: nothing is pinned
	back   *unix.CPUSet
}

func newPlanes(tb testing.TB, parts ...devstack.Part) *planes {
	tb.Helper()
	// A node that has to wait for its processor must not be suspected.
	p := &planes{stack: stacktest.Start(tb, devstack.Config{Parts: parts, NodeTimeout: 3 * time.Second})}
	p.client = redis.NewClusterClient(redisfence.Options(p.stack.CoordAddrs...))
	tb.Cleanup(func() { _ = p.client.Close() })
	var err error
	p.store, err = redisfence.New(p.client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(tb, err)
	require.NoError(tb, p.store.Load(tb.Context()))
	p.log = redisstream.New(p.store, p.client)
	if n := runtime.NumCPU() / 2; n > 0 && os.Getenv("TILEFENCE_BENCH_PIN") != "off" {
		p.front, p.back, err = processor.Split(n)
		require.NoError(tb, err)
	}
	for _, server := range p.stack.Processes() {
		set := p.back
		for _, addr := range p.stack.CoordAddrs {
			if server.Addr() == addr {
				set = p.front
			}
		}
		pin(tb, server.Pid(), set)
	}
	if p.front != nil { // what this process plays is not of the commit path
		var all unix.CPUSet
		require.NoError(tb, unix.SchedGetaffinity(0, &all))
		pin(tb, os.Getpid(), p.back)
		tb.Cleanup(func() { pin(tb, os.Getpid(), &all) })
	}
	return p
}

// start starts a part and waits until it is ready.
func (p *planes) start(tb testing.TB, cfg partConfig) *process {
	tb.Helper()
	c := p.launch(tb, cfg)
	c.await(tb, "ready")
	return c
}

// launch starts a part on its half of the processors.
func (p *planes) launch(tb testing.TB, cfg partConfig) *process {
	tb.Helper()
	cfg.Redis, cfg.Fanout, cfg.DynamoDB = p.stack.CoordAddrs, p.stack.FanoutAddrs, p.stack.DynamoURL
	c := launch(tb, envPart, cfg)
	set := p.back
	if cfg.Role == "owner" {
		set = p.front
	}
	pin(tb, c.cmd.Process.Pid, set)
	if cfg.Role == "reader" {
		yield(tb, c.cmd.Process.Pid, true) // readers are many machines: what else runs here must not wait for them
	}
	return c
}

// pin binds a process to processors.
func pin(tb testing.TB, pid int, set *unix.CPUSet) {
	tb.Helper()
	require.NoError(tb, processor.Bind(pid, set))
}

// yield lets a process give way to all others, or ends that.
func yield(tb testing.TB, pid int, yields bool) {
	tb.Helper()
	require.NoError(tb, processor.Yield(pid, yields))
}

// measure watches what an owner does for a while.
func (p *process) measure(tb testing.TB, during time.Duration) window {
	tb.Helper()
	p.window(tb)
	time.Sleep(during)
	w := p.window(tb)
	require.NotZero(tb, w.Commit.N, "nothing was committed")
	return w
}

// window asks an owner what it measured since it was asked the last time.
func (p *process) window(tb testing.TB) window {
	tb.Helper()
	_, err := p.orders.Write([]byte("window\n"))
	require.NoError(tb, err)
	return *p.await(tb, "window").Window
}

// counts are what a part has done so far, by its own word of a moment ago.
func (p *process) counts() counts { return *p.counted.Load() }

// newCounts waits for the next word of a part: a busy machine may keep that of now for a while.
func (p *process) newCounts(tb testing.TB) counts {
	tb.Helper()
	last := p.counted.Load()
	waittest.Until(tb, func() bool { return p.counted.Load() != last }, time.Minute, countEvery/10, "it says nothing")
	return p.counts()
}

// ms is a duration as the tables have it.
func ms(d time.Duration) float64 { return float64(d) / 1e6 }
