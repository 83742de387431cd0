package redisdirectory_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/directory/redisdirectory"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

// hung is the address of a server that takes connections and says nothing, until the test ends or it is freed.
func hung(t *testing.T) (address string, free func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var taken []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			taken = append(taken, c)
			mu.Unlock()
		}
	}()
	free = func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range taken {
			_ = c.Close()
		}
	}
	t.Cleanup(free)
	return l.Addr().String(), free
}

// TestNoRoom: behind a look-up that is under way 4,096 wait, and the others are refused at once. Those that wait obey
// their context.
func TestNoRoom(t *testing.T) {
	address, free := hung(t)
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, ReadTimeout: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := redisdirectory.New(client, fence.World{})
	ctx, cancel := context.WithCancel(t.Context())
	const waits, extra = 4096, 300
	var refused, left, other atomic.Int64
	var work sync.WaitGroup
	for i := range 1 + waits + extra {
		work.Go(func() {
			_, err := s.Look(ctx, fmt.Sprint("p", i))
			var store *fence.StoreError
			switch {
			case !errors.As(err, &store):
				other.Add(1)
			case errors.Is(err, directory.ErrOverloaded) && errors.Is(err, fence.ErrNotApplied):
				refused.Add(1)
			case errors.Is(err, context.Canceled) && errors.Is(err, fence.ErrNotApplied):
				left.Add(1)
			default:
				other.Add(1) // the one under way
			}
		})
	}
	waittest.Until(t, func() bool { return refused.Load() == extra }, 30*time.Second, time.Millisecond)
	cancel()
	waittest.Until(t, func() bool { return left.Load() == waits }, 30*time.Second, time.Millisecond)
	free()
	work.Wait()
	require.EqualValues(t, []int64{extra, waits, 1}, []int64{refused.Load(), left.Load(), other.Load()})
}

// pipelines counts the look-ups of each pipeline that a client sends.
type pipelines struct{ most, sent atomic.Int64 }

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.sent.Add(1)
		for old := p.most.Load(); int64(len(cmds)) > old && !p.most.CompareAndSwap(old, int64(len(cmds))); {
			old = p.most.Load()
		}
		return next(ctx, cmds)
	}
}

// TestLooksTogether: of many look-ups at once, some of them impatient, each gets its own player's record, and no
// pipeline has more than 128. Servers that have lost the script get it again.
func TestLooksTogether(t *testing.T) {
	client, name, rng := newClient(t, stacktest.Fanout(t)), stacktest.UniqueName(t), seed.Rand(t)
	s := redisdirectory.New(client, fence.World{})
	const players, askers, each = 300, 400, 10
	moves := make([]directory.Move, players)
	for i := range moves {
		moves[i] = directory.Move{Actor: fmt.Sprint(name, i), To: fence.TileID(i + 1), At: time.Now()}
	}
	require.NoError(t, s.Place(t.Context(), moves...))
	var sent pipelines
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		node.AddHook(&sent)
		return node.ScriptFlush(ctx).Err()
	}))
	var answered atomic.Int64
	var work sync.WaitGroup
	for range askers {
		start, hurry := rng.IntN(players), rng.IntN(8) == 0
		work.Go(func() {
			for n := range each {
				i := (start + 31*n) % players
				patience := time.Minute
				if hurry {
					patience = time.Duration(n) * 200 * time.Microsecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				r, err := s.Look(ctx, moves[i].Actor)
				cancel()
				switch {
				case err == nil && (len(r) != 1 || r[0].Place.Tile != moves[i].To):
					t.Errorf("%s is in %v, want %s", moves[i].Actor, r, moves[i].To)
				case err == nil:
					answered.Add(1)
				case !hurry:
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	t.Logf("%d of %d answered, %d pipelines, the largest of %d", answered.Load(), askers*each, sent.sent.Load(),
		sent.most.Load())
	require.Greater(t, sent.most.Load(), int64(1))
	require.LessOrEqual(t, sent.most.Load(), int64(128))
}

// TestOneServerHangs: while one master does not answer, and hundreds wait for it, players of the others are found.
func TestOneServerHangs(t *testing.T) {
	real, name := newClient(t, stacktest.Fanout(t)), stacktest.UniqueName(t)
	dead, free := hung(t)
	slots, err := real.ClusterSlots(t.Context()).Result() //nolint:staticcheck // as ClusterOptions takes them
	require.NoError(t, err)
	for i := range slots {
		if slots[i].Nodes[0].Addr == slots[0].Nodes[0].Addr {
			slots[i].Nodes = []redis.ClusterNode{{Addr: dead}}
		}
	}
	options := redisfanout.Options()
	options.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil }
	options.ReadTimeout, options.MaxRedirects = time.Minute, -1
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	s := redisdirectory.New(client, fence.World{})
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var there []string
	for i := range 600 {
		actor := fmt.Sprint(name, i)
		node, err := client.MasterForKey(ctx, redisdirectory.Key(actor))
		require.NoError(t, err)
		if !strings.HasSuffix(dead, node.Options().Addr) { // the client leaves a loopback's host out
			there = append(there, actor)
			continue
		}
		work.Go(func() {
			limited, stop := context.WithTimeout(ctx, 20*time.Second)
			defer stop()
			_, err := s.Look(limited, actor)
			if err == nil {
				t.Error("a server that says nothing has answered")
			}
		})
	}
	require.NotEmpty(t, there)
	limited, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	for _, actor := range there {
		_, err := s.Look(limited, actor)
		require.NoError(t, err, actor)
	}
	cancel()
	free() // for the one that is under way
	work.Wait()
}
