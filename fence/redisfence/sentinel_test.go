package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// watched is a master with two replicas and three sentinels, which promote a replica when the master is silent for a
// second.
type watched struct {
	*testing.T
	stack     *devstack.Stack
	servers   []*devstack.Process
	sentinels []string
	program   string
}

func newWatched(t *testing.T) *watched {
	w := &watched{T: t, stack: stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Views}})}
	var err error
	w.program, err = exec.LookPath("redis-server")
	require.NoError(t, err)
	master, found := w.stack.Process("views")
	require.True(t, found)
	w.servers = append(w.servers, master)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	for _, name := range []string{"replica-1", "replica-2"} {
		w.servers = append(w.servers, w.launch(name, "--save", "", "--repl-diskless-sync-delay", "0",
			"--replicaof", host+" "+port))
	}
	for i := range 3 {
		// Sentinels write into their file what they see.
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "sentinel monitor tiles %s %s 2\n"+
			"sentinel down-after-milliseconds tiles 1000\nsentinel failover-timeout tiles 4000\n", host, port), 0o600))
		w.sentinels = append(w.sentinels, w.launch(fmt.Sprint("sentinel-", i), file, "--sentinel").Addr())
	}
	return w
}

// launch starts the engine's program on a port of its own.
func (w *watched) launch(name string, args ...string) *devstack.Process {
	w.Helper()
	port := stacktest.FreePort(w)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if strings.HasPrefix(args[0], "/") { // a configuration file comes first
		args = append([]string{args[0], "--port", strconv.Itoa(port), "--bind", "127.0.0.1"}, args[1:]...)
	} else {
		args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1"}, args...)
	}
	p, err := w.stack.Launch(w.Context(), devstack.Program{Name: name, Addr: addr, Path: w.program, Args: args,
		Ready: func(ctx context.Context, _ int) error { return w.node(addr).Ping(ctx).Err() }})
	require.NoError(w, err)
	return p
}

func (w *watched) node(addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1, ContextTimeoutEnabled: true})
	w.Cleanup(func() { _ = client.Close() })
	return client
}

// master is the server that the first sentinel names.
func (w *watched) master() *devstack.Process {
	w.Helper()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: w.sentinels[0]})
	defer func() { _ = sentinel.Close() }()
	at, err := sentinel.GetMasterAddrByName(w.Context(), "tiles").Result()
	require.NoError(w, err)
	for _, p := range w.servers {
		if p.Addr() == net.JoinHostPort(at[0], at[1]) {
			return p
		}
	}
	require.Fail(w, "no server is the master", "%v", at)
	return nil
}

// TestSentinel: behind a fail-over client, with MinReplicas as many as there are replicas, what was confirmed survives
// every promotion: the owner whose master is killed or paused finds it again, and appends what comes after it.
func TestSentinel(t *testing.T) {
	t.Parallel()
	stacktest.RequireFullTest(t)
	w := newWatched(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "tiles", SentinelAddrs: w.sentinels,
		ContextTimeoutEnabled: true, ReadTimeout: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	_, err := redisfence.New(client, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument, "how many replicas there are cannot be seen")
	require.ErrorContains(t, err, "MinReplicas")
	store, err := redisfence.New(client, &redisfence.Config{MinReplicas: 2, Persistence: redisfence.Volatile})
	require.NoError(t, err)
	waittest.Until(t, func() bool { return store.Load(t.Context()) == nil && len(store.Check(t.Context())) == 0 },
		30*time.Second, 50*time.Millisecond, "two replicas follow")

	o := &sentinelOwner{T: t, store: store, tile: newTile()}
	c := founding(o.tile)
	c.Replicas = fence.AllReplicas
	o.present(c, true)
	for _, fault := range []os.Signal{os.Kill, devstack.Pause, os.Kill} {
		for i := range 10 {
			o.append(i%2 == 0)
		}
		old := w.master()
		require.NoError(t, old.Signal(fault))
		began := time.Now()
		o.append(false) // goes on with one replica, and is not confirmed
		t.Logf("%v: commits go on after %v", fault, time.Since(began))
		waittest.Until(t, func() bool { return w.master() != old }, 10*time.Second, 20*time.Millisecond,
			"this sentinel may learn of the failover from another")
		if fault == os.Kill {
			require.NoError(t, old.Restart(context.WithoutCancel(t.Context())))
		} else {
			require.NoError(t, old.Signal(devstack.GoOn))
		}
		o.append(true) // once the old master has become a replica
	}
	entries := hands{t, client}.entries(o.tile)
	require.NoError(t, fencetest.CheckHistory(o.tile, entries))
	require.Equal(t, o.history[len(o.history)-1].Next(), entries[len(entries)-1].Position)
	require.Len(t, entries, len(o.history), "each batch is there once")
}

// sentinelOwner presents batches as an owner does, and appends again what a failover has taken.
type sentinelOwner struct {
	*testing.T
	store     *redisfence.Store
	tile      fence.TileID
	history   []fence.Commit
	confirmed int // batches that every replica has confirmed
}

func (o *sentinelOwner) append(confirm bool) {
	o.Helper()
	c := follow(o.tile, 1, o.history[len(o.history)-1].Next())
	if confirm {
		c.Replicas = fence.AllReplicas
	}
	o.present(c, confirm)
}

func (o *sentinelOwner) present(c fence.Commit, confirm bool) {
	o.Helper()
	o.history = append(o.history, c)
	next := len(o.history) - 1 // the batch that the store lacks
	waittest.Until(o, func() bool {
		for next < len(o.history) {
			ctx, cancel := context.WithTimeout(o.Context(), 2*time.Second)
			_, err := o.store.Commit(ctx, o.history[next])
			cancel()
			refused, _ := errors.AsType[*fence.RefusedError](err)
			switch {
			case err == nil:
				next++
			case refused == nil:
				return false // not confirmed, or no answer
			default:
				require.ErrorIs(o, err, fence.ErrBehind)
				for next > 0 && o.history[next].Prev != refused.Current.Position {
					next--
				}
				require.GreaterOrEqual(o, next, o.confirmed, "a confirmed batch is lost")
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond)
	if confirm {
		o.confirmed = len(o.history)
	}
}
